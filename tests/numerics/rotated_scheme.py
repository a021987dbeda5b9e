"""A scheme that labkit does not know, whose caches attend themselves: keys and values in a rotated basis."""

from __future__ import annotations

from typing import Any, ClassVar

import mlx.core as mx
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache

from labkit.core.kv_setting import KVSetting
from labkit.core.spec import KVSpec
from labkit.model.attention import CacheSpec


class Rotated:
    """What is kept is `x R` of every key and value, R orthogonal; attention turns queries and results."""

    SPEC: ClassVar[CacheSpec] = CacheSpec(attend=True)
    calls: ClassVar[list[str]] = []

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        turned = (mx.hadamard_transform(keys), mx.hadamard_transform(values))
        return super().update_and_fetch(*turned)  # type: ignore[misc]

    def attend(self, queries: mx.array, keys: mx.array, values: mx.array, **how: Any) -> mx.array:
        self.calls.append(type(self).__name__)
        turned = mx.hadamard_transform(queries)
        output = mx.fast.scaled_dot_product_attention(turned, keys, values, **how)
        # The transform over sqrt(n) is its own inverse.
        return mx.hadamard_transform(output)


class RotatedKVCache(Rotated, KVCache):
    """Of a full layer."""


class RotatedRing(Rotated, RotatingKVCache):
    """Of a sliding layer."""


class RotatedScheme:
    """Nothing of it is known to labkit."""

    SPEC: ClassVar[KVSpec] = KVSpec(
        family="rotated",
        summary="keys and values in a rotated basis",
        oracle="bf16",
        gate="within f32 sums",
        fits=frozenset({"full", "sliding"}),
        attends=True,
        settled={"full": "RotatedKVCache", "sliding": "RotatedRing"},
    )

    def __init__(self, setting: KVSetting) -> None:
        pass

    def make(self, graph: Any) -> list[Any]:
        own = make_prompt_cache(graph)
        return [
            RotatedRing(cache.max_size, cache.keep) if type(cache) is RotatingKVCache else RotatedKVCache()
            for cache in own
        ]

    def settle(self, caches: list[Any]) -> None:
        pass
