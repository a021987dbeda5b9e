"""Attention over affine codes whose keys and values differ in bits. Knows leaves and masks, no caches."""

from __future__ import annotations

import mlx.core as mx

from labkit.kv.leaves import Leaves


def attend_quantized(
    queries: mx.array,
    keys: Leaves,
    values: Leaves,
    *,
    k_bits: int,
    v_bits: int,
    group_size: int,
    scale: float,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
) -> mx.array:
    """softmax(scale q k^T + mask) v over codes, which stay packed; the softmax in f32.

    queries: `(B, heads, n, key_size)`, left as they are. keys, values: leaves `(B, kv_heads, length, width)`
    with scales in the dtype of the queries. mask: None, "causal", boolean or to be added, broadcast to
    `(B, heads, n, length)`. sinks: `(heads,)` logits that take their share of each row. Gives
    `(B, heads, n, value_size)`. With equal bits these are the operations of
    `mlx_lm.models.base.quantized_scaled_dot_product_attention`, bit for bit.
    """
    rows, heads, n, size = queries.shape
    kv_heads = keys[0].shape[1]
    grouped = (rows, kv_heads, heads // kv_heads, n)
    scaled = mx.reshape(queries * scale, (*grouped, size))
    keys, values = (tuple(leaf[:, :, None] for leaf in leaves) for leaves in (keys, values))
    scores = mx.quantized_matmul(scaled, *keys, transpose=True, group_size=group_size, bits=k_bits)
    scores = _masked(scores, mask, heads)
    weights = _softmax(scores, sinks, grouped)
    output = mx.quantized_matmul(weights, *values, transpose=False, group_size=group_size, bits=v_bits)
    return mx.reshape(output, (rows, heads, n, output.shape[-1]))


def _masked(scores: mx.array, mask: mx.array | str | None, heads: int) -> mx.array:
    """scores: `(B, kv_heads, repeats, n, length)`."""
    if mask is None:
        return scores
    if isinstance(mask, str):
        n, length = scores.shape[-2:]
        mask = mx.arange(length - n, length)[:, None] >= mx.arange(length)
    if mask.ndim == 4:
        per_head = mask.shape[1] == heads and heads > 1
        shape = (mask.shape[0], *scores.shape[1:3]) if per_head else (*mask.shape[:2], 1)
        mask = mx.reshape(mask, (*shape, *mask.shape[2:]))
    if mask.dtype == mx.bool_:
        return mx.where(mask, scores, mx.finfo(scores.dtype).min)
    return scores + mask


def _softmax(scores: mx.array, sinks: mx.array | None, grouped: tuple[int, int, int, int]) -> mx.array:
    """Weights `(B, kv_heads, repeats, n, length)`; what the sinks take is missing from each row."""
    if sinks is None:
        return mx.softmax(scores, axis=-1, precise=True)
    sink = mx.reshape(sinks.astype(scores.dtype), (*grouped[1:3], 1, 1))
    whole = mx.concatenate([mx.broadcast_to(sink, (*grouped, 1)), scores], axis=-1)
    return mx.softmax(whole, axis=-1, precise=True)[..., 1:]
