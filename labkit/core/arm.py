"""Arm: one complete configuration of a model. Workload stands beside it, for whoever speaks of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from labkit.core.canonical import digest, plain, stated
from labkit.core.sampling import Sampling
from labkit.core.workload import Workload

__all__ = ["Arm", "Workload"]

_SHORT = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


@dataclass(frozen=True, slots=True)
class Arm:
    """One complete configuration of model, KV scheme, sampling, method and backend.

    model: a bundled name, directory, hub id or a null model (`null:...`).
    blas: `mkl`, `openblas` or `reference` on a CPU backend; None takes the machine's default.
    recipe: `auto` or the name of a promoted experiment lays that recipe over this arm where it applies; None,
    the default, runs the arm as it is written.
    policy: who runs next in the batch engine, `fcfs` and others, or a class of one's own; cap: rows at most;
    kv_budget_bytes: for the caches of all rows. An arm that states one of them runs in the batch engine, with
    one request too; None takes the engine's default.
    """

    model: str
    kv: str = "bf16"
    blas: str | None = None
    sampling: Sampling = field(default_factory=Sampling)
    method: str | None = None
    prefill_chunk: int | None = None
    recipe: str | None = None
    policy: str | None = None
    cap: int | None = None
    kv_budget_bytes: int | None = None

    @property
    def batches(self) -> bool:
        """Whether it says how requests share the batch engine."""
        return any(value is not None for value in (self.policy, self.cap, self.kv_budget_bytes))

    def identity(self) -> dict[str, Any]:
        """Every field as plain JSON data; `from_identity` reads it back."""
        return plain(self)

    @classmethod
    def from_identity(cls, data: Mapping[str, Any]) -> Arm:
        """The arm of an `identity`, also one written before some field existed."""
        return cls(**{**data, "sampling": Sampling(**data.get("sampling", {}))})

    def hash(self) -> str:
        return digest(stated(self))

    def label(self, dtype: str | None = None) -> str:
        """A short human name: the model and whatever differs from the defaults.

        dtype: the model's own, which the scheme `bf16` stands for; it is named where it is known.
        """
        own = _SHORT.get(dtype or "", dtype) if self.kv == "bf16" and dtype else self.kv
        parts = [self.model, f"kv={own}"]
        if self.blas:
            parts.append(f"blas={self.blas}")
        if self.method:
            parts.append(self.method)
        if self.prefill_chunk:
            parts.append(f"chunk={self.prefill_chunk}")
        if self.recipe:
            parts.append(f"recipe={self.recipe}")
        if self.policy:
            parts.append(f"policy={self.policy}")
        if self.cap is not None:
            parts.append(f"cap={self.cap}")
        if self.kv_budget_bytes is not None:
            parts.append(f"budget={self.kv_budget_bytes}")
        return " ".join([*parts, *map(_short, stated(self.sampling).items())])


def _short(setting: tuple[str, Any]) -> str:
    """A setting of the sampling as a label shows it; of a table only how long it is."""
    name, value = setting
    text = f"{value:g}" if isinstance(value, int | float) else f"<{len(value)}>"
    return f"{'T' if name == 'temperature' else name}={text}"
