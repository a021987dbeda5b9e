"""Capabilities as data: what a model is (Profile) and what labkit offers (specs in a Catalog)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

LayerKind = Literal["full", "sliding", "recurrent"]
Provider = Literal["weights", "null"]
# What an execution can do beside stepping: fork and rewind; be saved and resumed; record taps; draw with
# processors, samplers and alternatives of the request; decode in one forward with others.
Feature = Literal["branch", "save", "tap", "sample", "batch"]
# Scales and biases in 16 bits; the positions that a row holds before its caches are quantized.
KVOption = Literal["s16", "start"]
_OPTIONS: Mapping[KVOption, str] = {"s16": "s16", "start": "start<n>"}


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What one cache of a row holds, as mlx-lm makes it.

    name: its class. kv_heads, key_size, value_size: the keys and values of a token, `item_bytes` wide each
    (of latent attention the latent and its rotary part); 0 where it holds none.
    window: the tokens it keeps, None where it keeps all. state_bytes: what it holds at any length.
    token_bytes: what a token adds to a cache of another form, on average (DeepSeek V4.1's latents of several
    tokens). parts: the caches of a cache that is a list of them.
    """

    name: str
    kv_heads: int = 0
    key_size: int = 0
    value_size: int = 0
    item_bytes: int = 0
    window: int | None = None
    state_bytes: int = 0
    token_bytes: float = 0.0
    parts: tuple[CacheShape, ...] = ()

    @property
    def elements(self) -> int:
        """Numbers that a token adds, without those of `parts`."""
        return self.kv_heads * (self.key_size + self.value_size)

    def leaves(self) -> tuple[CacheShape, ...]:
        """The cache itself, or the caches that it is a list of."""
        return tuple(leaf for part in self.parts for leaf in part.leaves()) or (self,)


@dataclass(frozen=True, slots=True)
class Profile:
    """What the engine knows of an artifact: its config, and what mlx-lm builds of it.

    layers: the kind of each cache, in the order of the caches; of a list of caches the kind that gives back
    the least. caches: their shapes, in the same order, or empty where they are not known.
    depth: the layers of the model, with and without a cache. moe: which of them hold experts, from 0.
    kv_heads, head_dim: those of the first cache with keys (None where no cache has any).
    quantizes: whether its attention reads mlx-lm's quantized caches.
    status: `registered` where labkit runs its oracle tests on this architecture, else `universal`.
    family: groups artifacts that are variants of one model on the frontier.
    provider: what is behind the graph, `weights` or the null model; a method runs on one of them.
    """

    name: str
    family: str
    architecture: str
    layers: tuple[LayerKind, ...]
    context_length: int
    vocab_size: int
    hidden_size: int
    heads: int
    kv_heads: int | None
    head_dim: int | None
    dtype: str
    fingerprint: str
    sliding_window: int | None = None
    status: Literal["registered", "universal"] = "universal"
    oracle: str = "mlx-lm"
    provider: Provider = "weights"
    moe: tuple[int, ...] = ()
    experts: int = 0
    experts_per_token: int = 0
    caches: tuple[CacheShape, ...] = ()
    depth: int = 0
    quantizes: bool = True

    def own_layout(self) -> tuple[str | None, ...]:
        """The class that the model itself makes of each cache; None where that is not known."""
        return tuple(cache.name for cache in self.caches) or (None,) * len(self.layers)

    def head_sizes(self) -> tuple[int, ...]:
        """Every size of a key or value in a cache, smallest first."""
        leaves = [leaf for cache in self.caches for leaf in cache.leaves()]
        known = {size for leaf in leaves for size in (leaf.key_size, leaf.value_size) if leaf.kv_heads}
        return tuple(sorted(known)) or ((self.head_dim,) if self.head_dim else ())

    def explain(self) -> str:
        """The profile as lines of text."""
        kinds = ", ".join(f"{self.layers.count(k)} {k}" for k in dict.fromkeys(self.layers))
        rows = [
            ("model", f"{self.name} ({self.status}, family {self.family})"),
            ("graph", f"{self.architecture}, hidden {self.hidden_size}, vocabulary {self.vocab_size}"),
            ("layers", kinds + (f" (window {self.sliding_window})" if self.sliding_window else "")),
            ("experts", self._experts_line()),
            ("kv", self._kv_line()),
            ("context", f"{self.context_length} tokens"),
            ("dtype", self.dtype),
            ("oracle", self.oracle),
            ("fingerprint", self.fingerprint),
        ]
        return "\n".join(f"{name:<12}{text}" for name, text in rows if text)

    def _experts_line(self) -> str:
        if not self.moe:
            return ""
        return (
            f"{self.experts_per_token} of {self.experts} a token, in {len(self.moe)} of {self.depth} layers"
        )

    def _kv_line(self) -> str:
        if self.kv_heads is None:
            return "none"
        leaves = [leaf for cache in self.caches for leaf in cache.leaves() if leaf.kv_heads]
        shapes = dict.fromkeys((leaf.kv_heads, leaf.key_size, leaf.value_size) for leaf in leaves)
        named = [f"{h} heads of {k}" + ("" if k == v else f" and {v}") for h, k, v in shapes]
        return ", ".join(named) or f"{self.kv_heads} heads of {self.head_dim}"


@dataclass(frozen=True, slots=True)
class KVSpec:
    """A family of KV schemes: the grammar of its names, and where it runs.

    bits: those that a name may state, as in `affine:8`; empty where it stores no affine codes of MLX, which
    the model's attention must read. groups: group sizes, the default first. options: what may follow after a
    slash. file: whether the name has a file in place of bits and group, with those of each layer, as in
    `mixed:kv_config.json`. attends: whether its caches attend themselves, through the seam.
    fits: layer kinds it can hold. settled: the cache class expected per layer kind after a run; a kind that
    is absent keeps the class that the model itself made, or has that of the layer's codes.
    unavailable: device -> why not there. oracles: of layer kinds that have another than `oracle`.
    """

    family: str
    summary: str
    oracle: str
    gate: str
    fits: frozenset[LayerKind]
    bits: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    options: tuple[KVOption, ...] = ()
    file: bool = False
    attends: bool = False
    settled: Mapping[LayerKind, str] = field(default_factory=dict)
    unavailable: Mapping[str, str] = field(default_factory=dict)
    oracles: Mapping[LayerKind, str] = field(default_factory=dict)

    @property
    def group_size(self) -> int | None:
        return self.groups[0] if self.groups else None

    @property
    def quantizes(self) -> bool:
        """Whether its layers hold affine codes."""
        return bool(self.bits)

    def names(self) -> tuple[str, ...]:
        """Names without options, as a list of them shows."""
        if self.file:
            return (f"{self.family}:kv_config.json",)
        return tuple(f"{self.family}:{b}" for b in self.bits) or (self.family,)

    def form(self) -> str:
        """What its names look like: `affine:<bits>[/g<group>][/s16][/start<n>]`."""
        argument = ":<file>.json" if self.file else ":<bits>" if self.bits else ""
        group = "[/g<group>]" if self.groups and not self.file else ""
        return f"{self.family}{argument}{group}" + "".join(f"[/{_OPTIONS[o]}]" for o in self.options)


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """An inference method: how steps come to be. emits: `stream` token by token, or `final` at the end.

    greedy_only: whether it cannot draw with labkit's keyed noise. provider: what its graph must be.
    kv_families: the KV schemes that it has, of codes only one setting for all layers; None for every scheme.
    features: what its executions can do beside stepping. argument: whether its name takes a share of 0 or
    more, as in `slowed:0.10`.
    """

    name: str
    summary: str
    emits: Literal["stream", "final"] = "stream"
    greedy_only: bool = False
    provider: Provider = "weights"
    features: frozenset[Feature] = frozenset()
    argument: bool = False
    kv_families: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything the planner may choose from, collected once. backend: device and BLAS, e.g. `cpu/mkl`."""

    kv: Mapping[str, KVSpec]
    methods: Mapping[str, MethodSpec]
    default_prefill_chunk: int
    backend: str

    def kv_names(self) -> tuple[str, ...]:
        return tuple(name for spec in self.kv.values() for name in spec.names())

    def including(self, label: str, spec: KVSpec) -> Catalog:
        """This catalog and a scheme of somebody's own, by its label."""
        return replace(self, kv={**self.kv, label: spec})
