"""Stacked: the caches of one layer's rows as one cache, and a row of it as a cache again.

Rows at one position become a cache of their own class, with all rows in it: what runs is what runs for a row
alone. Rows at different positions become a `Padded`. Knows one layer at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models.cache import ArraysCache, KVCache, QuantizedKVCache, RotatingKVCache

from labkit.kv.form import FORMS, Held, grown, holding, settings, slots, trimmed
from labkit.kv.padded import Padded, PaddedAttending, PaddedCodes
from labkit.kv.quantized import SplitQuantizedKVCache
from labkit.kv.rotating_quantized import RotatingQuantizedKVCache, RotatingSplitQuantizedKVCache

_PADDED: dict[type, type[Padded]] = {
    KVCache: Padded,
    RotatingKVCache: Padded,
    QuantizedKVCache: PaddedCodes,
    RotatingQuantizedKVCache: PaddedCodes,
    SplitQuantizedKVCache: PaddedAttending,
    RotatingSplitQuantizedKVCache: PaddedAttending,
}


def stacks(caches: Sequence[Any]) -> bool:
    """Whether these filled caches of one layer's rows can be one: one class, one setting."""
    first, *others = caches
    kind = type(first)
    if kind is ArraysCache:
        return all(type(other) is kind and len(other.cache) == len(first.cache) for other in others)
    return kind in FORMS and all(type(o) is kind and settings(o) == settings(first) for o in others)


def stack(caches: Sequence[Any]) -> Any:
    """One cache of these rows' filled caches, which `stacks`; each of their buffers is copied once."""
    if type(caches[0]) is ArraysCache:
        return _stack_arrays(caches)
    form, rows = FORMS[type(caches[0])], [trimmed(cache) for cache in caches]
    lengths, places = [row.offset for row in rows], [form.slot(row) for row in rows]
    filled = form.filled(rows[0], lengths)
    room = max(*filled, min(grown(rows[0], max(filled)), max(slots(row.keys) for row in rows)))
    held = _piled([(row.keys, row.values) for row in rows], filled, room)
    if len(set(zip(lengths, places, strict=True))) == 1:
        return holding(rows[0], held, lengths[0], places[0])
    return _PADDED[type(rows[0])](holding(rows[0], (None, None), 0, 0), held, lengths, places)


def row_of(stacked: Any, index: int) -> Any:
    """One row as a cache of its own class. Its arrays are views: they hold the whole stack in memory."""
    if type(stacked) is ArraysCache:
        return _row_of_arrays(stacked, index)
    lone, length, place = _position(stacked, index)
    form = FORMS[type(lone)]
    (filled,) = form.filled(lone, [length])
    room = max(filled, min(grown(lone, filled), slots(stacked.keys)))

    def cut(leaf: mx.array) -> mx.array:
        return leaf[index : index + 1, :, :room]

    return holding(lone, tree_map(cut, (stacked.keys, stacked.values)), length, place)


def copied(cache: Any) -> Any:
    """A row's cache with arrays of its own."""
    if type(cache) is ArraysCache:
        made = ArraysCache(len(cache.cache))
        made.cache = [None if state is None else mx.contiguous(state) for state in cache.cache]
        return made
    held = tree_map(mx.contiguous, (cache.keys, cache.values))
    return holding(cache, held, cache.offset, FORMS[type(cache)].slot(cache))


def _position(stacked: Any, index: int) -> tuple[Any, int, int]:
    """A cache with the row's settings, its length and the slot of its next token."""
    if type(stacked) in FORMS:
        return stacked, stacked.offset, FORMS[type(stacked)].slot(stacked)
    return stacked.lone, stacked.lengths[index], stacked.places[index]


def _piled(rows: Sequence[Held], filled: Sequence[int], room: int) -> Held:
    """Rows `(1, kv_heads, length, width)` as `(B, kv_heads, room, width)`, leaf by leaf."""

    def pile(*leaves: mx.array) -> mx.array:
        if all(leaf.shape[2] == room for leaf in leaves):
            return mx.concatenate(list(leaves))
        _, heads, _, width = leaves[0].shape
        made = mx.zeros((len(leaves), heads, room, width), leaves[0].dtype)
        for index, (leaf, end) in enumerate(zip(leaves, filled, strict=True)):
            made[index : index + 1, :, :end] = leaf[:, :, :end]
        return made

    return tree_map(pile, *rows)


def _stack_arrays(caches: Sequence[Any]) -> ArraysCache:
    made = ArraysCache(len(caches[0].cache))
    made.cache = [_filled(states) for states in zip(*(cache.cache for cache in caches), strict=True)]
    return made


def _filled(states: Sequence[mx.array | None]) -> mx.array | None:
    """States `(1, ...)` of the rows as `(B, ...)`; zeros stand for one that is not there, as in mlx-lm."""
    there = next((state for state in states if state is not None), None)
    if there is None:
        return None
    return mx.concatenate([mx.zeros_like(there) if state is None else state for state in states])


def _row_of_arrays(stacked: ArraysCache, index: int) -> ArraysCache:
    made = ArraysCache(len(stacked.cache))
    made.cache = [None if state is None else state[index : index + 1] for state in stacked.cache]
    return made
