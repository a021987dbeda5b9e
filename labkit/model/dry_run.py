"""Trace: the shapes of a model's caches after a step, without computing it. Knows graphs, not configs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from labkit.core.spec import CacheShape

# The classes of mlx-lm with keys and values, and the attribute that limits the tokens they keep.
_LIMITS = {"KVCache": None, "RotatingKVCache": "max_size", "ChunkedKVCache": "chunk_size"}
_KNOWN = (*_LIMITS, "ArraysCache", "CacheList")
# Longer than any convolution, so that a state has all it will hold.
_CHUNK = 8
# Longer than a window, and a multiple of what a latent stands for.
_LONG = (512, 768)
# What mlx says where a traced function asks for a number.
_ASKED = "during function transformations"
_GROUPS = (64, 128, 32)
# Different ones, so that attention over one cache's keys with another's bits (iquestloopcoder) fails here.
_BITS = {"KVCache": (8, 4), "RotatingKVCache": (2, 3)}


@dataclass(frozen=True, slots=True)
class Traced:
    """caches: the shape of each. vocab_size: width of the logits, None where the trace ended before them.

    quantizes: whether a further step runs over quantized caches; False where there is nothing to quantize.
    """

    caches: tuple[CacheShape, ...]
    vocab_size: int | None
    quantizes: bool


def trace(model: Any) -> Traced:
    """Trace a chunk through an mlx-lm model, then one more over quantized caches.

    Where a layer looks at its numbers (dbrx), the trace ends: the caches after it are taken to hold what the
    first of their class holds, and quantized ones to be read where mlx-lm's attention is called by its name.
    Raises what the model raises on the first chunk.
    """
    from mlx_lm.models.cache import make_prompt_cache

    caches = make_prompt_cache(model)
    found: list[Traced] = []

    def two_steps(tokens: Any) -> None:
        logits = model(tokens, cache=caches)
        shapes, width = _shapes(caches), logits.shape[-1]
        found.append(Traced(shapes, width, _runs_quantized(model, caches, tokens)))

    try:
        _without_computing(two_steps, _CHUNK)
    except ValueError as error:
        if _ASKED not in str(error):
            raise
        by_name = hasattr(sys.modules[type(model).__module__], "scaled_dot_product_attention")
        found.append(Traced(_shapes(caches), None, by_name))
    return replace(found[0], caches=_with_growth(model, found[0].caches))


def _without_computing(step: Callable[[Any], None], length: int) -> None:
    """Call `step` with `(1, length)` tokens that hold no numbers; asking for one raises ValueError."""
    import mlx.core as mx

    def traced(tokens: mx.array) -> mx.array:
        step(tokens)
        return mx.zeros(())

    mx.compile(traced)(mx.zeros((1, length), mx.int32))


def _bytes_at(model: Any, length: int) -> list[int]:
    from mlx_lm.models.cache import make_prompt_cache

    caches = make_prompt_cache(model)
    _without_computing(lambda tokens: model(tokens, cache=caches), length)
    return [cache.nbytes for cache in caches]


def _with_growth(model: Any, shapes: tuple[CacheShape, ...]) -> tuple[CacheShape, ...]:
    """Caches of a form that labkit does not know: what a token adds between two lengths, and what is left."""
    if all(s.name in _KNOWN for s in shapes):
        return shapes
    start, end = _LONG
    grown = []
    for s, few, many in zip(shapes, _bytes_at(model, start), _bytes_at(model, end), strict=True):
        token = (many - few) / (end - start)
        state = round(few - start * token)
        grown.append(s if s.name in _KNOWN else replace(s, token_bytes=token, state_bytes=state))
    return tuple(grown)


def _runs_quantized(model: Any, caches: list[Any], tokens: Any) -> bool:
    """Whether a step runs once the plain caches are quantized. mlx-lm's only answer is to raise or not to."""
    plain = [i for i, cache in enumerate(caches) if type(cache).__name__ in _BITS]
    sizes = [a.shape[-1] for i in plain for a in (caches[i].keys, caches[i].values) if a is not None]
    group = next((g for g in _GROUPS if all(size and size % g == 0 for size in sizes)), None)
    if not sizes or group is None:
        return False
    for index in plain:
        bits = _BITS[type(caches[index]).__name__][index % 2]
        caches[index] = _unwrapped(caches[index]).to_quantized(group_size=group, bits=bits)
    try:
        model(tokens[:, :1], cache=caches)
    except Exception:
        return False
    return True


def _unwrapped(cache: Any) -> Any:
    """The same keys and values in a cache without a window: a ring that has not turned reads alike."""
    from mlx_lm.models.cache import KVCache

    full = KVCache()
    full.state = cache.keys, cache.values, cache.offset
    return full


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
    if cache.keys is None:
        return CacheShape(name, window=window)
    return CacheShape(
        name=name,
        kv_heads=cache.keys.shape[1],
        key_size=cache.keys.shape[-1],
        value_size=cache.values.shape[-1],
        item_bytes=cache.keys.dtype.size,
        window=window,
    )


def _holds(cache: CacheShape) -> bool:
    return any(leaf.kv_heads or leaf.state_bytes for leaf in cache.leaves())
