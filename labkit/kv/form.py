"""Form: how a cache class lies in memory, as data, so that rows of it can stand in one array.

Knows mlx-lm's classes and labkit's own that are like them. Every one has `keys` and `values` (an array, or a
tuple of arrays, `(B, kv_heads, room, width)` each), an `offset`, a ring `_idx` too; the rest is settings.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models.cache import KVCache, QuantizedKVCache, RotatingKVCache

from labkit.kv.leaves import pack
from labkit.kv.quantized import SplitQuantizedKVCache
from labkit.kv.rotating_quantized import RotatingQuantizedKVCache, RotatingSplitQuantizedKVCache

# Keys and values as a cache has them.
Held = tuple[Any, Any]
_STATE = frozenset({"keys", "values", "offset", "_idx"})


@dataclass(frozen=True, slots=True)
class Form:
    """ring: whether it keeps `max_size` positions and writes the next over the oldest one after `keep`.

    pack: what keys and values `(B, kv_heads, n, size)` become, by a cache with the settings.
    """

    ring: bool
    pack: Callable[[Any, mx.array, mx.array], Held]

    def limit(self, cache: Any) -> int | None:
        """Positions that it keeps, None where all."""
        return cache.max_size if self.ring else None

    def first(self, cache: Any) -> int:
        """The slot after the last one."""
        return cache.keep if self.ring else 0

    def filled(self, cache: Any, lengths: Sequence[int]) -> list[int]:
        """Slots that rows of these lengths fill."""
        return [min(length, cache.max_size) for length in lengths] if self.ring else list(lengths)

    def slot(self, cache: Any) -> int:
        """Where its next token goes, before the ring turns."""
        return cache._idx if self.ring and cache.offset >= cache.max_size else cache.offset


def grown(cache: Any, filled: int) -> int:
    """Slots that a row with so many filled has at most when it grew by itself."""
    return -(-filled // cache.step) * cache.step


def settings(cache: Any) -> dict[str, Any]:
    """What a cache is set to, without what it holds."""
    return {name: value for name, value in vars(cache).items() if name not in _STATE}


def slots(keys: Any) -> int:
    """Slots allocated for these keys or values."""
    return leaves(keys)[0].shape[2]


def leaves(held: Any) -> list[mx.array]:
    """The arrays of keys, of values, or of both."""
    return [leaf for _, leaf in cast("list[tuple[str, mx.array]]", tree_flatten(held))]


def holding(lone: Any, held: Held, length: int, slot: int) -> Any:
    """A cache of the class and settings of `lone` that holds this."""
    made = copy.copy(lone)
    made.keys, made.values = held
    made.offset = length
    if FORMS[type(lone)].ring:
        made._idx = slot
    return made


def trimmed(cache: Any) -> Any:
    """A ring that holds more than its size after a chunk, as its next token finds it; else the cache."""
    over = slots(cache.keys) - cache.max_size if FORMS[type(cache)].ring else 0
    if over <= 0:
        return cache
    kept = cache.keep

    def cut(leaf: mx.array) -> mx.array:
        return mx.concatenate([leaf[..., :kept, :], leaf[..., over + kept :, :]], axis=2)

    return holding(cache, tree_map(cut, (cache.keys, cache.values)), cache.offset, cache.max_size)


def _plain(cache: Any, keys: mx.array, values: mx.array) -> Held:
    return keys, values


def _codes(cache: Any, keys: mx.array, values: mx.array) -> Held:
    how = {"bits": cache.bits, "group_size": cache.group_size}
    return pack(keys, **how), pack(values, **how)


def _own_codes(cache: Any, keys: mx.array, values: mx.array) -> Held:
    return cache.packed(keys, values)


FORMS: dict[type, Form] = {
    KVCache: Form(ring=False, pack=_plain),
    RotatingKVCache: Form(ring=True, pack=_plain),
    QuantizedKVCache: Form(ring=False, pack=_codes),
    SplitQuantizedKVCache: Form(ring=False, pack=_own_codes),
    RotatingQuantizedKVCache: Form(ring=True, pack=_codes),
    RotatingSplitQuantizedKVCache: Form(ring=True, pack=_own_codes),
}
