"""Stored: the caches of a row as a plan stores them, and what a token adds to each. Pure; knows no growth."""

from __future__ import annotations

from dataclasses import dataclass

from labkit.core.kv_setting import QUANTIZABLE, KVSetting, LayerKV
from labkit.core.spec import CacheShape, Profile


@dataclass(frozen=True, slots=True)
class Stored:
    """One cache. kept: its codes; None where it holds what the model itself makes."""

    leaf: CacheShape
    kept: LayerKV | None = None

    @property
    def token_bytes(self) -> float:
        """Bytes that a token adds while no window is full."""
        leaf = self.leaf
        if self.kept is None:
            return leaf.elements * leaf.item_bytes + leaf.token_bytes
        return self.kept.token_bytes(leaf.kv_heads, leaf.key_size, leaf.value_size, leaf.item_bytes)

    def at(self, tokens: float, start: int) -> Stored:
        """The cache when it has been given so many tokens: plain before `start` of them."""
        return self if tokens >= max(start, 1) else Stored(self.leaf)


def stored(profile: Profile, setting: KVSetting) -> tuple[Stored, ...]:
    """Every cache of a row. What a scheme without codes of MLX holds is taken to be the model's own."""
    found: list[Stored] = []
    for layer, cache in enumerate(profile.caches):
        kept = setting.layer(layer) if cache.name in QUANTIZABLE else None
        found += [Stored(leaf, kept) for leaf in cache.leaves()]
    return tuple(found)
