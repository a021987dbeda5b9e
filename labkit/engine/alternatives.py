"""Alternatives: the likeliest tokens beside the one drawn, lazily; and how they are read."""

from __future__ import annotations

from typing import Any, cast

import mlx.core as mx

from labkit.core.step import TopLogprobs


def alternatives(logprobs: mx.array, token: mx.array, k: int) -> tuple[mx.array, mx.array, mx.array]:
    """Ids and f32 log-probabilities `(k,)` of the k likeliest, and that of the drawn `token` `()`.

    logprobs: `(vocab,)` or `(1, vocab)`. The likeliest comes first, of equals the lower id. Nothing is
    evaluated.
    """
    row = logprobs.reshape(-1)
    keys = _rank_keys(row)
    best = mx.argpartition(keys, kth=k - 1)[:k]
    ids = mx.take(best, mx.argsort(mx.take(keys, best)))
    return ids, mx.take(row, ids).astype(mx.float32), mx.take(row, token).astype(mx.float32)


def read_alternatives(token: int, top: tuple[mx.array, ...]) -> TopLogprobs:
    """What `alternatives` gave, on the host, beside the committed token; waits until it is evaluated."""
    ids, values, own = (cast(Any, array.tolist()) for array in top)
    return TopLogprobs(token, own, tuple(zip(ids, values, strict=True)))


def _rank_keys(row: mx.array) -> mx.array:
    """Unique int64 keys `(n,)` that ascend with falling values and, among equals, with the id.

    The bits of an f32, read as an integer, are ordered as its value once those of negatives are flipped.
    """
    # Adding 0 makes -0 a 0, since the two are equal as values.
    bits = (row.astype(mx.float32) + 0.0).view(mx.int32)
    ordered = mx.where(bits < 0, mx.bitwise_xor(bits, mx.array(0x7FFFFFFF)), bits).astype(mx.int64)
    return mx.arange(row.size, dtype=mx.int64) - mx.left_shift(ordered, mx.array(32, dtype=mx.int64))
