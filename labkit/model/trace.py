"""Trace: the shapes of a model's caches after a step, without computing it. Knows graphs, not configs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from labkit.core.spec import CacheShape

# The classes of mlx-lm with keys and values, and the attribute that limits the tokens they keep.
_LIMITS = {"KVCache": None, "RotatingKVCache": "max_size", "ChunkedKVCache": "chunk_size"}
# What mlx says where a traced function asks for a number.
_ASKED = "during function transformations"
_GROUPS = (64, 128, 32)


@dataclass(slots=True)
class Traced:
    """caches: the shape of each. vocab_size: width of the logits, None where the trace ended before them.

    quantizes: whether a further step runs over quantized caches; False where there is nothing to quantize.
    """

    caches: tuple[CacheShape, ...]
    vocab_size: int | None = None
    quantizes: bool = False


def trace(model: Any) -> Traced:
    """Trace a chunk of two tokens through an mlx-lm model, then one more over quantized caches.

    A layer that the trace does not reach, since a layer before it looks at its numbers (dbrx), is taken to
    hold what the first cache of its class holds. Raises what the model raises on the first chunk.
    """
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    caches = make_prompt_cache(model)
    found = Traced(())

    def two_steps(tokens: mx.array) -> mx.array:
        logits = model(tokens, cache=caches)
        found.caches, found.vocab_size = _shapes(caches), logits.shape[-1]
        found.quantizes = _runs_quantized(model, caches, tokens)
        return mx.zeros(())

    try:
        mx.compile(two_steps)(mx.zeros((1, 2), mx.int32))
    except ValueError as error:
        if _ASKED not in str(error):
            raise
        found.caches = _shapes(caches)
    return found


def _runs_quantized(model: Any, caches: list[Any], tokens: Any) -> bool:
    """Whether a step runs once the plain caches are quantized. mlx-lm's only answer is to raise or not to."""
    plain = [i for i, cache in enumerate(caches) if type(cache).__name__ == "KVCache"]
    sizes = [a.shape[-1] for i in plain for a in (caches[i].keys, caches[i].values) if a is not None]
    group = next((g for g in _GROUPS if all(size and size % g == 0 for size in sizes)), None)
    if not sizes or group is None:
        return False
    for index in plain:
        caches[index] = caches[index].to_quantized(group_size=group, bits=8)
    try:
        model(tokens[:, :1], cache=caches)
    except Exception:
        return False
    return True


def _shapes(caches: list[Any]) -> tuple[CacheShape, ...]:
    shapes = [shape(cache) for cache in caches]
    reached = {s.name: s for s in reversed(shapes) if _holds(s)}
    return tuple(s if _holds(s) else replace(reached.get(s.name, s), window=s.window) for s in shapes)


def shape(cache: Any) -> CacheShape:
    """The shape of one of mlx-lm's caches, as far as it is filled."""
    name = type(cache).__name__
    if name == "CacheList":
        return CacheShape(name, parts=tuple(shape(part) for part in cache.caches))
    if name not in _LIMITS:
        return CacheShape(name, state_bytes=cache.nbytes)
    limit = _LIMITS[name]
    window = getattr(cache, limit) if limit else None
    keys, values = cache.keys, cache.values
    if keys is None:
        return CacheShape(name, window=window)
    return CacheShape(
        name=name,
        kv_heads=keys.shape[1],
        key_size=keys.shape[-1],
        value_size=values.shape[-1],
        item_bytes=keys.dtype.size,
        window=window,
    )


def _holds(cache: CacheShape) -> bool:
    return any(leaf.kv_heads or leaf.state_bytes for leaf in cache.leaves())
