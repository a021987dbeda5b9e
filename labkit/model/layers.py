"""Layers: the kind of a layer by the cache that mlx-lm makes for it. Knows shapes of caches, not configs."""

from __future__ import annotations

from collections.abc import Mapping

from labkit.core.spec import CacheShape, LayerKind

# A bare `sliding_window` (Mistral, Qwen2, Gemma 2) gives a KVCache in mlx-lm, so those layers are full.
KINDS: Mapping[str, LayerKind] = {
    "KVCache": "full",
    "RotatingKVCache": "sliding",
    "ChunkedKVCache": "sliding",
}
_LEAST_FIRST: tuple[LayerKind, ...] = ("recurrent", "sliding", "full")


def layer_kind(cache: CacheShape) -> LayerKind:
    """What a cache can give back: `full` every position, `sliding` those in its window, `recurrent` none.

    A list of caches gives back what the least of them does; a class that labkit does not know, nothing.
    """
    kinds = {KINDS.get(leaf.name, "recurrent") for leaf in cache.leaves()}
    return next(kind for kind in _LEAST_FIRST if kind in kinds)
