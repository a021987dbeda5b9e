"""The `affine` scheme: mlx-lm's quantized cache from token 0 (its `kv_bits` with `quantized_kv_start=0`)."""

from __future__ import annotations

from typing import Any, ClassVar

from labkit.core.kv_setting import KVSetting
from labkit.core.spec import KVSpec


class Affine:
    """Affine codes with a scale and a bias per group of 64, in the model's dtype.

    As in mlx-lm, a cache is quantized after the model call that filled it, so the first chunk attends
    to unquantized keys and values and everything later to quantized ones.
    """

    SPEC: ClassVar[KVSpec] = KVSpec(
        family="affine",
        summary="affine quantized keys and values",
        oracle="mlx-lm kv_bits",
        gate="bit-exact",
        fits=frozenset({"full"}),
        bits=(4, 8),
        group_size=64,
        unavailable={"cuda": "MLX 0.32.4 has no CUDA kernel for its quantized_matmul over KV heads"},
        settled={"full": "QuantizedKVCache(bits={bits}, group_size={group_size})"},
    )

    def __init__(self, setting: KVSetting) -> None:
        from mlx_lm.models.cache import KVCache

        self._setting, self._plain = setting, KVCache

    def make(self, graph: Any) -> list[Any]:
        from mlx_lm.models.cache import make_prompt_cache

        return make_prompt_cache(graph)

    def settle(self, caches: list[Any]) -> None:
        for layer, cache in enumerate(caches):
            kept = self._setting.layer(layer)
            if kept is not None and type(cache) is self._plain:
                caches[layer] = cache.to_quantized(group_size=kept.group_size, bits=kept.k_bits)
