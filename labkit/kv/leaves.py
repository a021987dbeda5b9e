"""Leaves: keys or values as affine codes, arrays that grow together. Knows no attention, no schemes.

A leaf is `(B, kv_heads, length, width)`. mlx-lm's own caches grow each of them as they would grow an array,
so that room, rings and order are theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

# Codes in 32-bit words, then a scale and a bias per group.
Leaves = tuple[mx.array, ...]


def pack(x: mx.array, *, bits: int, group_size: int, short: bool = False) -> Leaves:
    """Codes of `x` `(B, kv_heads, length, size)`; short: scales and biases in at most 16 bits (float16)."""
    codes, *steps = mx.quantize(x, group_size=group_size, bits=bits)
    return (codes, *(step.astype(mx.float16) if short and step.dtype.size > 2 else step for step in steps))


def widen(leaves: Leaves, dtype: mx.Dtype) -> Leaves:
    """The same codes with scales and biases in the dtype that computes with them."""
    codes, *steps = leaves
    return (codes, *(step.astype(dtype) for step in steps))


def unpack(leaves: Leaves, *, bits: int, group_size: int, dtype: mx.Dtype) -> mx.array:
    """The numbers that the codes stand for, `(B, kv_heads, length, size)`."""
    return mx.dequantize(*widen(leaves, dtype), group_size=group_size, bits=bits)


def grow(
    kind: type[Any],
    held: tuple[Leaves | None, Leaves | None],
    place: tuple[int, ...],
    added: tuple[Leaves, Leaves],
) -> tuple[tuple[Leaves, Leaves], tuple[int, ...], tuple[Leaves, Leaves]]:
    """Add keys and values, leaf by leaf, as mlx-lm's cache class `kind` adds arrays.

    held: what is there already. place: the rest of that class's state, e.g. its offset. Gives what is held
    then, where it stands then, and what is to be attended to.
    """
    nothing = (None,) * len(added[0])
    pairs = list(zip(held[0] or nothing, held[1] or nothing, strict=True))
    caches = [kind.from_state((*pair, *place)) for pair in pairs]
    fetched = [cache.update_and_fetch(key, value) for cache, key, value in zip(caches, *added, strict=True)]
    states = [cache.state for cache in caches]
    return _sides(states), tuple(states[0][2:]), _sides(fetched)


def _sides(pairs: Sequence[tuple[Any, ...]]) -> tuple[Leaves, Leaves]:
    """The first of every pair, and the second."""
    return tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
