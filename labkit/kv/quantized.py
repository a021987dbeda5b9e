"""The quantized caches of a full layer that mlx-lm has none for: keys and values of different bits, or scales
and biases of 16 bits. Knows leaves; a scheme decides which layer gets one.
"""

from __future__ import annotations

from typing import Any, ClassVar

import mlx.core as mx
from mlx_lm.models.cache import KVCache, QuantizedKVCache

from labkit.core.kv_setting import LayerKV, cache_name
from labkit.kv.leaves import Leaves, grow, pack, unpack, widen
from labkit.kv.quantized_attention import attend_quantized
from labkit.model.attention import CacheSpec


class SplitLeaves:
    """How a cache with bits of its own for keys and for values packs, attends and shows them.

    The settings are attributes, so that a snapshot holds them.
    """

    SPEC: ClassVar[CacheSpec] = CacheSpec(attend=True, shows_keys=True)
    KIND: ClassVar[str]

    k_bits: int
    v_bits: int
    group_size: int
    short: bool

    @property
    def kept(self) -> LayerKV:
        """The setting of this layer."""
        return LayerKV(self.k_bits, self.v_bits, self.group_size, self.short)

    @property
    def layout(self) -> str:
        """What is checked after a run. `short` is set only where the model's dtype is wider."""
        return cache_name(self.KIND, self.kept, 4)

    def packed(self, keys: mx.array, values: mx.array) -> tuple[Leaves, Leaves]:
        """Leaves of keys and values `(B, kv_heads, n, size)`."""
        how = {"group_size": self.group_size, "short": self.short}
        return pack(keys, bits=self.k_bits, **how), pack(values, bits=self.v_bits, **how)

    def attend(
        self,
        queries: mx.array,
        keys: Leaves,
        values: Leaves,
        *,
        scale: float,
        mask: mx.array | str | None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        """Attention `(B, heads, n, value_size)` over leaves that `update_and_fetch` gave."""
        wide = (widen(leaves, queries.dtype) for leaves in (keys, values))
        bits = {"k_bits": self.k_bits, "v_bits": self.v_bits, "group_size": self.group_size}
        return attend_quantized(queries, *wide, **bits, scale=scale, mask=mask, sinks=sinks)

    def show_keys(self, keys: Leaves) -> mx.array:
        """The keys as numbers in f32, `(B, kv_heads, length, size)`."""
        return unpack(keys, bits=self.k_bits, group_size=self.group_size, dtype=mx.float32)

    def _set(self, kept: LayerKV) -> None:
        self.k_bits, self.v_bits = kept.k_bits, kept.v_bits
        self.group_size, self.short = kept.group_size, kept.short


class SplitQuantizedKVCache(SplitLeaves, QuantizedKVCache):
    """All positions of a full layer; room, trim and masks as mlx-lm's KVCache has them."""

    KIND: ClassVar[str] = "full"

    keys: Leaves | None
    values: Leaves | None

    def __init__(self, kept: LayerKV) -> None:
        self.keys = self.values = None
        self.offset = 0
        self._set(kept)

    @classmethod
    def of(cls, cache: KVCache, kept: LayerKV) -> SplitQuantizedKVCache:
        """What a plain cache holds, quantized as it lies, its spare room included."""
        made = cls(kept)
        made.offset = cache.offset
        keys, values = cache.keys, cache.values
        if keys is not None and values is not None:
            made.keys, made.values = made.packed(keys, values)
        return made

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Leaves, Leaves]:
        """Add `(B, kv_heads, n, size)`; gives the leaves of all positions."""
        held, added = (self.keys, self.values), self.packed(keys, values)
        (self.keys, self.values), (self.offset,), fetched = grow(KVCache, held, (self.offset,), added)
        return fetched

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(leaf.nbytes for leaves in (self.keys, self.values) for leaf in leaves or ())

    @property
    def state(self) -> Any:
        """Everything there is, as mlx-lm's caches have it."""
        return self.keys, self.values, self.offset, self.k_bits, self.v_bits, self.group_size, self.short

    @state.setter
    def state(self, v: Any) -> None:
        self.keys, self.values, self.offset, *kept = v
        self._set(LayerKV(*kept))
