"""Made attention: attention over keys and values that are made up, stored as a plan stores them.

It does the work of the caches of `kv`, for a calibration to time; what it computes means nothing.
"""

from __future__ import annotations

from typing import Any

from labkit.core.kv_setting import LayerKV


def made(shape: tuple[int, ...], kept: LayerKV | None, bits: int | None, dtype: Any) -> list[Any]:
    """Keys or values `(B, kv_heads, length, size)`: one array, or codes, scales and biases."""
    import mlx.core as mx

    plain = mx.full(shape, 0.01, dtype=dtype)
    if kept is None or bits is None:
        return [plain]
    codes, *steps = mx.quantize(plain, group_size=kept.group_size, bits=bits)
    return [codes, *(step.astype(mx.float16) if kept.short else step for step in steps)]


def attend(queries: Any, keys: list[Any], values: list[Any], length: int, kept: LayerKV | None) -> Any:
    """Attention over the first `length` positions of a cache's room, as it runs over such a cache."""
    import mlx.core as mx
    from mlx_lm.models.base import quantized_scaled_dot_product_attention as quantized_attention

    k, v = (tuple(part[..., :length, :] for part in parts) for parts in (keys, values))
    mask: Any = "causal" if queries.shape[2] > 1 else None
    if kept is None:
        return mx.fast.scaled_dot_product_attention(queries, k[0], v[0], scale=0.1, mask=mask)
    if kept.in_dtype(queries.dtype.size).is_split:
        return _attend_split(queries, k, v, kept)
    # The upstream function scales the queries it is given in place.
    return quantized_attention(queries + 0, k, v, 0.1, mask, group_size=kept.group_size, bits=kept.k_bits)


def _attend_split(queries: Any, keys: tuple[Any, ...], values: tuple[Any, ...], kept: LayerKV) -> Any:
    """The work of attention over codes with bits of their own, scales widened first; without a mask."""
    import mlx.core as mx

    rows, heads, count, size = queries.shape
    grouped = queries.reshape(rows, keys[0].shape[1], -1, count, size)
    (k, *k_steps), (v, *v_steps) = (tuple(leaf[:, :, None] for leaf in leaves) for leaves in (keys, values))
    wide = [[step.astype(queries.dtype) for step in steps] for steps in (k_steps, v_steps)]
    how = {"group_size": kept.group_size}
    scores = mx.quantized_matmul(grouped * 0.1, k, *wide[0], transpose=True, bits=kept.k_bits, **how)
    weights = mx.softmax(scores, axis=-1, precise=True)
    found = mx.quantized_matmul(weights, v, *wide[1], transpose=False, bits=kept.v_bits, **how)
    return found.reshape(rows, heads, count, -1)
