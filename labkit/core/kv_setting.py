"""KVSetting: how the keys and values of every layer are stored, as data. Knows no caches and no files."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class LayerKV:
    """How one layer stores its keys and values: affine codes of MLX with a scale and a bias a group.

    k_bits, v_bits: of a key's and a value's element. short: whether scales and biases take 16 bits, whatever
    the model's dtype.
    """

    k_bits: int
    v_bits: int
    group_size: int = 64
    short: bool = False

    @property
    def is_split(self) -> bool:
        """Whether its cache attends itself; else mlx-lm's attention reads the codes."""
        return self.k_bits != self.v_bits or self.short

    def in_dtype(self, item_bytes: int) -> LayerKV:
        """The setting on a model whose elements are so wide: `short` says nothing where they are short."""
        return replace(self, short=self.short and item_bytes > 2)

    def token_bytes(self, kv_heads: int, key_size: int, value_size: int, item_bytes: int) -> float:
        """Bytes of one token in a layer with these heads. item_bytes: of the model's dtype."""
        scale = min(item_bytes, 2) if self.short else item_bytes
        codes = key_size * self.k_bits / 8 + value_size * self.v_bits / 8
        return kv_heads * (codes + 2 * scale * (key_size + value_size) / self.group_size)


@dataclass(frozen=True, slots=True)
class KVSetting:
    """What the name of a KV scheme asks for on one model: the scheme is made from it, and the plan hashes it.

    family: the scheme's. layers: one entry per cache of the model, None where a layer keeps the model's own
    cache; empty for a scheme that has no settings. start: positions that a row holds before its caches take
    the scheme's form; 0 is at once.
    """

    family: str
    layers: tuple[LayerKV | None, ...] = ()
    start: int = 0

    def layer(self, index: int) -> LayerKV | None:
        """The setting of one layer, None where it keeps the model's own cache."""
        return self.layers[index] if index < len(self.layers) else None


# The cache classes of mlx-lm that have a quantized form, and the kind of layer that each stands for.
QUANTIZABLE = {"KVCache": "full", "RotatingKVCache": "sliding"}
_EVEN = {"full": "QuantizedKVCache", "sliding": "RotatingQuantizedKVCache"}
_SPLIT = {"full": "SplitQuantizedKVCache", "sliding": "RotatingSplitQuantizedKVCache"}
_PLAIN = {made[kind]: own for own, kind in QUANTIZABLE.items() for made in (_EVEN, _SPLIT)}


def cache_name(kind: str, kept: LayerKV, item_bytes: int) -> str:
    """The class and settings of the cache that holds a layer so, as they are checked after a run.

    kind: `full` or `sliding`, since no other has a quantized cache. item_bytes: of the model's dtype.
    """
    kept = kept.in_dtype(item_bytes)
    if not kept.is_split:
        return f"{_EVEN[kind]}(bits={kept.k_bits}, group_size={kept.group_size})"
    scales = ", scales=16" if kept.short else ""
    bits = f"k_bits={kept.k_bits}, v_bits={kept.v_bits}"
    return f"{_SPLIT[kind]}({bits}, group_size={kept.group_size}{scales})"


def plain_name(name: str) -> str:
    """The class that stands where `cache_name` will until a row has `start` positions; else `name` itself."""
    return _PLAIN.get(name.partition("(")[0], name)
