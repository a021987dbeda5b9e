"""Arm: one complete configuration of a model. Workload stands beside it, for whoever speaks of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from labkit.core.canonical import digest, plain, stated
from labkit.core.kv_file import portable
from labkit.core.own_class import OwnClass, class_of, named
from labkit.core.sampling import Sampling
from labkit.core.workload import Workload

__all__ = ["Arm", "Workload"]

_SHORT = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


@dataclass(frozen=True, slots=True)
class Arm:
    """One complete configuration of model, KV scheme, sampling, method and backend.

    model: a bundled name, directory, hub id or a null model (`null:...`).
    kv: the name of a scheme. A class of one's own, here or as policy, becomes its label and is in classes.
    blas: `mkl`, `openblas` or `reference` on a CPU backend; None takes the machine's default.
    recipe: `auto` or the name of a promoted experiment lays that recipe over this arm where it applies; None,
    the default, runs the arm as it is written.
    policy: who runs next in the batch engine, `fcfs` and others, or a class of one's own; cap: rows at most;
    kv_budget_bytes: for the caches of all rows. An arm that states one of them runs in the batch engine, with
    one request too; None takes the engine's default.
    """

    model: str
    kv: str | type = "bf16"
    blas: str | None = None
    sampling: Sampling = field(default_factory=Sampling)
    method: str | None = None
    prefill_chunk: int | None = None
    recipe: str | None = None
    policy: str | type | None = None
    cap: int | None = None
    kv_budget_bytes: int | None = None
    classes: tuple[OwnClass, ...] = ()

    def __post_init__(self) -> None:
        for name in ("kv", "policy"):
            label, classes = named(getattr(self, name), self.classes)
            object.__setattr__(self, name, label)
            object.__setattr__(self, "classes", classes)

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
        classes = tuple(OwnClass(**own) for own in data.get("classes", ()))
        return cls(**{**data, "sampling": Sampling(**data.get("sampling", {})), "classes": classes})

    def asked(self, name: str) -> Any:
        """What the field `kv` or `policy` states, ready to be asked for: a name, or the class it labels."""
        label = getattr(self, name)
        return class_of(label, self.classes) or label

    def portable(self) -> Arm:
        """As a record holds it: files by their names alone, and classes by their source."""
        classes = tuple(replace(own, pickled="") for own in self.classes)
        return replace(self, kv=portable(str(self.kv)), classes=classes)

    def hash(self) -> str:
        """Of what is stated; a label has the hash of its class in it."""
        fields = stated(replace(self.portable(), classes=()))
        return digest(fields)

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
