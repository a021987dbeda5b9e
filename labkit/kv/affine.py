"""The `affine` scheme: mlx-lm's `kv_bits` on full layers, a ring of the same codes on sliding ones."""

from __future__ import annotations

from typing import Any, ClassVar

from labkit.core.kv_setting import KVSetting
from labkit.core.spec import KVSpec


class Affine:
    """Affine codes with a scale and a bias per group, in the model's dtype or in 16 bits.

    As in mlx-lm, a cache is quantized after the first model call that leaves it `start` positions or more, so
    that call attends to unquantized keys and values and everything later to quantized ones.
    """

    SPEC: ClassVar[KVSpec] = KVSpec(
        family="affine",
        summary="affine quantized keys and values",
        oracle="mlx-lm kv_bits",
        gate="bit-exact",
        fits=frozenset({"full", "sliding"}),
        bits=(2, 3, 4, 5, 6, 8),
        groups=(64, 32, 128),
        options=("s16", "start"),
        oracles={"sliding": "mlx-optiq install_mixed_kv"},
        unavailable={"cuda": "MLX 0.32.4 has no CUDA kernel for its quantized_matmul over KV heads"},
    )

    def __init__(self, setting: KVSetting) -> None:
        from labkit.kv.quantize import quantized

        self._setting, self._quantized = setting, quantized
        self.settles_at = setting.start

    def make(self, graph: Any) -> list[Any]:
        from mlx_lm.models.cache import make_prompt_cache

        return make_prompt_cache(graph)

    def settle(self, caches: list[Any]) -> None:
        for layer, cache in enumerate(caches):
            kept = self._setting.layer(layer)
            if kept is not None and cache.offset >= self._setting.start:
                caches[layer] = self._quantized(cache, kept)
