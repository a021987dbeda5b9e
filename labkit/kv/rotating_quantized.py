"""The quantized caches of a sliding layer: mlx-lm's ring over leaves. mlx-lm has no such cache.

The ring is RotatingKVCache's own, one per leaf, so what is dropped, where the next position goes and which
mask is made are the same with and without quantization.
"""

from __future__ import annotations

from typing import Any, ClassVar

import mlx.core as mx
from mlx_lm.models.cache import RotatingKVCache

from labkit.core.kv_setting import LayerKV
from labkit.kv.leaves import Leaves, grow, pack
from labkit.kv.quantized import SplitLeaves


class RingOfLeaves(RotatingKVCache):
    """A ring whose keys and values are leaves; a subclass says how they are packed."""

    keys: Leaves | None
    values: Leaves | None

    def packed(self, keys: mx.array, values: mx.array) -> tuple[Leaves, Leaves]:
        """Leaves of keys and values `(B, kv_heads, n, size)`."""
        raise NotImplementedError

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Leaves, Leaves]:
        """Add `(B, kv_heads, n, size)`; gives the leaves that are attended to, in the ring's order."""
        place = (self.offset, self.keep, self.max_size, self._idx)
        held, place, fetched = grow(
            RotatingKVCache, (self.keys, self.values), place, self.packed(keys, values)
        )
        (self.keys, self.values), (self.offset, _, _, self._idx) = held, place
        return fetched

    def keys_and_values(self) -> tuple[Leaves, Leaves]:
        """The leaves that the last update gave."""
        assert self.keys is not None
        assert self.values is not None
        keys, values = (
            tuple(leaf[..., : self.offset, :] if self.offset < leaf.shape[2] else leaf for leaf in leaves)
            for leaves in (self.keys, self.values)
        )
        return keys, values

    def to_quantized(self, group_size: int = 64, bits: int = 4) -> Any:
        """Itself, which is quantized already."""
        return self

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(leaf.nbytes for leaves in (self.keys, self.values) for leaf in leaves or ())

    def _take_over(self, cache: RotatingKVCache) -> None:
        """Hold what a plain ring holds, quantized as it lies."""
        _, _, self.offset, self.keep, self.max_size, self._idx = cache.state
        keys, values = cache.keys, cache.values
        if keys is not None and values is not None:
            self.keys, self.values = self.packed(keys, values)


class RotatingQuantizedKVCache(RingOfLeaves):
    """Keys and values of the same bits, scales in the model's dtype: mlx-lm's own attention reads them."""

    def __init__(self, max_size: int, keep: int = 0, *, group_size: int = 64, bits: int = 8) -> None:
        super().__init__(max_size, keep)
        self.group_size, self.bits = group_size, bits

    @classmethod
    def of(cls, cache: RotatingKVCache, kept: LayerKV) -> RotatingQuantizedKVCache:
        """What a plain ring holds, quantized as it lies."""
        made = cls(cache.max_size, cache.keep, group_size=kept.group_size, bits=kept.k_bits)
        made._take_over(cache)
        return made

    def packed(self, keys: mx.array, values: mx.array) -> tuple[Leaves, Leaves]:
        bits, group_size = self.bits, self.group_size
        return pack(keys, bits=bits, group_size=group_size), pack(values, bits=bits, group_size=group_size)

    @property
    def state(self) -> Any:
        """Everything there is, as mlx-lm's caches have it."""
        place = (self.offset, self.keep, self.max_size, self._idx)
        return self.keys, self.values, *place, self.group_size, self.bits

    @state.setter
    def state(self, v: Any) -> None:
        self.keys, self.values, self.offset, self.keep, self.max_size, self._idx, *kept = v
        self.group_size, self.bits = kept


class RotatingSplitQuantizedKVCache(SplitLeaves, RingOfLeaves):
    """Keys and values of different bits, or with scales of 16 bits: it attends itself."""

    KIND: ClassVar[str] = "sliding"

    def __init__(self, max_size: int, keep: int, kept: LayerKV) -> None:
        RingOfLeaves.__init__(self, max_size, keep)
        self._set(kept)

    @classmethod
    def of(cls, cache: RotatingKVCache, kept: LayerKV) -> RotatingSplitQuantizedKVCache:
        """What a plain ring holds, quantized as it lies."""
        made = cls(cache.max_size, cache.keep, kept)
        made._take_over(cache)
        return made

    @property
    def state(self) -> Any:
        """Everything there is, as mlx-lm's caches have it."""
        place = (self.offset, self.keep, self.max_size, self._idx)
        return self.keys, self.values, *place, self.k_bits, self.v_bits, self.group_size, self.short

    @state.setter
    def state(self, v: Any) -> None:
        self.keys, self.values, self.offset, self.keep, self.max_size, self._idx, *kept = v
        self._set(LayerKV(*kept))
