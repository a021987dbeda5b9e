"""The `bf16` scheme: mlx-lm's own caches in the model's own dtype, bit for bit."""

from __future__ import annotations

from typing import Any, ClassVar

from labkit.core.kv_setting import KVSetting
from labkit.core.spec import KVSpec


class Plain:
    """What `mlx_lm.models.cache.make_prompt_cache` makes, untouched."""

    SPEC: ClassVar[KVSpec] = KVSpec(
        family="bf16",
        summary="the model's own dtype",
        oracle="mlx-lm",
        gate="bit-exact",
        fits=frozenset({"full", "sliding", "recurrent"}),
    )

    def __init__(self, setting: KVSetting) -> None:
        self.settles_at = 0

    def make(self, graph: Any) -> list[Any]:
        from mlx_lm.models.cache import make_prompt_cache

        return make_prompt_cache(graph)

    def settle(self, caches: list[Any]) -> None:
        pass
