"""Attention weights: the probabilities of one call of mlx-lm's attention function, computed beside it.

Knows queries, keys, masks and caches; no layers, no models.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from labkit.core.errors import LabkitError
from labkit.model.attention import CacheSpec


def attention_weights(
    queries: mx.array,
    keys: Any,
    cache: Any = None,
    scale: float = 1.0,
    mask: Any = None,
    sinks: mx.array | None = None,
) -> mx.array:
    """softmax(scale q k^T + mask) as `mlx_lm.models.base.scaled_dot_product_attention` has it, in f32.

    queries: `(batch, heads, n, dim)`. keys: `(batch, kv_heads, keys, dim)`, the three arrays of a quantized
    cache, or what a cache gave that shows its keys. mask: None, "causal", a boolean array or one to be added.
    sinks: `(heads,)` logits that take their share of each row and are left out. Gives
    `(batch, heads, n, keys)` in the order of `keys`. Raises LabkitError for keys that are none of these.
    """
    spec: CacheSpec | None = getattr(type(cache), "SPEC", None)
    if spec is not None and spec.shows_keys:
        keys = cache.show_keys(keys)
    elif isinstance(keys, (tuple, list)):
        keys = mx.dequantize(*keys, group_size=cache.group_size, bits=cache.bits)
    if not isinstance(keys, mx.array):
        need = "keys as an array or as mlx-lm's quantized triple were needed to record attention"
        raise LabkitError(need, got=f"{type(keys).__name__} of {type(cache).__name__}")
    queries, keys = queries.astype(mx.float32), keys.astype(mx.float32)
    keys = mx.repeat(keys, queries.shape[1] // keys.shape[1], axis=1)
    scores = _masked((queries * scale) @ keys.swapaxes(-1, -2), mask)
    if sinks is None:
        return mx.softmax(scores, axis=-1)
    sink = mx.broadcast_to(sinks.astype(mx.float32)[:, None, None], (*scores.shape[:-1], 1))
    return mx.softmax(mx.concatenate([scores, sink], axis=-1), axis=-1)[..., :-1]


def oldest_first(weights: mx.array, cache: Any) -> mx.array:
    """Weights `(batch, heads, n, keys)` with the keys in the order in which they came.

    A rotating cache overwrites its oldest entry and says itself what comes first (`_temporal_order`, over the
    second last axis); every other cache appends.
    """
    ordered = getattr(cache, "_temporal_order", None)
    return weights if ordered is None else ordered(weights.swapaxes(-1, -2)).swapaxes(-1, -2)


def _masked(scores: mx.array, mask: Any) -> mx.array:
    if mask is None:
        return scores
    if isinstance(mask, str):
        n, keys = scores.shape[-2:]
        mask = mx.arange(keys - n, keys)[:, None] >= mx.arange(keys)
    if mask.dtype == mx.bool_:
        return mx.where(mask, scores, mx.finfo(mx.float32).min)
    return scores + mask.astype(mx.float32)
