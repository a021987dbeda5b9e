"""Quantize: the quantized cache that takes a plain one's place, by the class of the plain one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlx_lm.models.cache import KVCache, RotatingKVCache

from labkit.core.kv_setting import LayerKV
from labkit.kv.quantized import SplitQuantizedKVCache
from labkit.kv.rotating_quantized import RotatingQuantizedKVCache, RotatingSplitQuantizedKVCache

_Form = Callable[[Any, LayerKV], Any]


def _upstream(cache: KVCache, kept: LayerKV) -> Any:
    return cache.to_quantized(group_size=kept.group_size, bits=kept.k_bits)


# Of equal bits with scales of the model's dtype; of anything else.
_FORMS: dict[type, tuple[_Form, _Form]] = {
    KVCache: (_upstream, SplitQuantizedKVCache.of),
    RotatingKVCache: (RotatingQuantizedKVCache.of, RotatingSplitQuantizedKVCache.of),
}


def quantized(cache: Any, kept: LayerKV) -> Any:
    """The quantized cache that goes on where a filled one of mlx-lm stands; any other cache as it is."""
    if type(cache) not in _FORMS or cache.keys is None:
        return cache
    even, split = _FORMS[type(cache)]
    kept = kept.in_dtype(cache.keys.dtype.size)
    return (split if kept.is_split else even)(cache, kept)
