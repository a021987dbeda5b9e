"""Alternatives: the likeliest tokens beside the one drawn, lazily; and how they are read."""

from __future__ import annotations

from typing import Any, cast

import mlx.core as mx

from labkit.core.step import TopLogprobs


def alternatives(logprobs: mx.array, k: int) -> tuple[mx.array, mx.array]:
    """Ids and f32 log-probabilities `(k,)` of the k likeliest of `logprobs` `(vocab,)` or `(1, vocab)`.

    The likeliest comes first, of equals the lower id. Nothing is evaluated.
    """
    row = logprobs.reshape(-1)
    keys = _rank_keys(row)
    best = mx.argpartition(keys, kth=k - 1)[:k]
    ids = mx.take(best, mx.argsort(mx.take(keys, best)))
    return ids, mx.take(row, ids).astype(mx.float32)


def read_alternatives(token: int, logprobs: mx.array, top: tuple[mx.array, ...]) -> TopLogprobs:
    """What `alternatives` gave, on the host, beside the committed token; waits where it is not evaluated yet.

    logprobs: the same `(vocab,)` or `(1, vocab)`.
    """
    ids, values = (cast(list[Any], array.tolist()) for array in top)
    known: dict[int, float] = dict(zip(ids, values, strict=True))
    # Reading a token that is not among them takes an operation of its own.
    own = known[token] if token in known else cast(float, logprobs.reshape(-1)[token].item())
    return TopLogprobs(token, own, tuple(known.items()))


def _rank_keys(row: mx.array) -> mx.array:
    """Unique int64 keys `(n,)` that ascend with falling values and, among equals, with the id.

    The bits of an f32, read as an integer, are ordered as its value once those of negatives are flipped.
    """
    # Adding 0 makes -0 a 0, since the two are equal as values.
    bits = (row.astype(mx.float32) + 0.0).view(mx.int32)
    ordered = mx.where(bits < 0, mx.bitwise_xor(bits, mx.array(0x7FFFFFFF)), bits).astype(mx.int64)
    return mx.arange(row.size, dtype=mx.int64) - mx.left_shift(ordered, mx.array(32, dtype=mx.int64))
