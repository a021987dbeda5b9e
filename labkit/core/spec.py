"""Capabilities as data: what a model is (Profile) and what labkit offers (specs in a Catalog)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

LayerKind = Literal["full", "sliding", "recurrent"]
Provider = Literal["weights", "null"]
# What an execution can do beside stepping: fork and rewind; be saved and resumed; record taps; draw with
# processors, samplers and alternatives of the request.
Feature = Literal["branch", "save", "tap", "sample"]


@dataclass(frozen=True, slots=True)
class Profile:
    """What the engine knows of an artifact, read from its config.

    layers: the kind of each layer with a cache. moe: which of them have experts, by index.
    head_dim, kv_heads: KV geometry (None where the config has none).
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

    def explain(self) -> str:
        """The profile as lines of text."""
        kinds = ", ".join(f"{self.layers.count(k)} {k}" for k in dict.fromkeys(self.layers))
        kv = "none" if self.kv_heads is None else f"{self.kv_heads} heads of {self.head_dim}"
        rows = [
            ("model", f"{self.name} ({self.status}, family {self.family})"),
            ("graph", f"{self.architecture}, hidden {self.hidden_size}, vocabulary {self.vocab_size}"),
            ("layers", kinds + (f" (window {self.sliding_window})" if self.sliding_window else "")),
            ("kv", kv),
            ("context", f"{self.context_length} tokens"),
            ("dtype", self.dtype),
            ("oracle", self.oracle),
            ("fingerprint", self.fingerprint),
        ]
        return "\n".join(f"{name:<12}{text}" for name, text in rows)


@dataclass(frozen=True, slots=True)
class KVSpec:
    """A family of KV schemes, e.g. `affine` with bits 4 and 8.

    bits: the valid arguments (empty: the name takes none).
    fits: layer kinds it can hold. settled: the cache class expected per layer kind after a run;
    a kind that is absent keeps the class that the model itself made. unavailable: device -> why not there.
    """

    family: str
    summary: str
    oracle: str
    gate: str
    fits: frozenset[LayerKind]
    bits: tuple[int, ...] = ()
    group_size: int | None = None
    settled: Mapping[LayerKind, str] = field(default_factory=dict)
    unavailable: Mapping[str, str] = field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.family}:{b}" for b in self.bits) or (self.family,)


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """An inference method: how steps come to be. emits: `stream` token by token, or `final` at the end.

    greedy_only: whether it cannot draw with labkit's keyed noise. provider: what its graph must be.
    features: what its executions can do beside stepping.
    """

    name: str
    summary: str
    emits: Literal["stream", "final"] = "stream"
    greedy_only: bool = False
    provider: Provider = "weights"
    features: frozenset[Feature] = frozenset()


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything the planner may choose from, collected once. backend: device and BLAS, e.g. `cpu/mkl`."""

    kv: Mapping[str, KVSpec]
    methods: Mapping[str, MethodSpec]
    default_prefill_chunk: int
    backend: str

    def kv_names(self) -> tuple[str, ...]:
        return tuple(name for spec in self.kv.values() for name in spec.names())
