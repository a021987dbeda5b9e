"""Arm and Workload: one complete configuration, and what it is made to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from labkit.core.canonical import digest, plain, stated
from labkit.core.sampling import Sampling

_SHORT = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


@dataclass(frozen=True, slots=True)
class Arm:
    """One complete configuration of model, KV scheme, sampling, method and backend.

    model: a bundled name, directory, hub id or a null model (`null:...`).
    blas: `mkl`, `openblas` or `reference` on a CPU backend; None takes the machine's default.
    recipe: `auto` or the name of a promoted experiment lays that recipe over this arm where it applies; None,
    the default, runs the arm as it is written.
    """

    model: str
    kv: str = "bf16"
    blas: str | None = None
    sampling: Sampling = field(default_factory=Sampling)
    method: str | None = None
    prefill_chunk: int | None = None
    recipe: str | None = None

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
        return " ".join([*parts, *map(_short, stated(self.sampling).items())])


def _short(setting: tuple[str, Any]) -> str:
    """A setting of the sampling as a label shows it; of a table only how long it is."""
    name, value = setting
    text = f"{value:g}" if isinstance(value, int | float) else f"<{len(value)}>"
    return f"{'T' if name == 'temperature' else name}={text}"


@dataclass(frozen=True, slots=True)
class Workload:
    """prompt_tokens prompt tokens, then new_tokens decoded, `concurrency` requests at a time."""

    prompt_tokens: int
    new_tokens: int
    concurrency: int = 1
    seed: int = 0

    def identity(self) -> dict[str, Any]:
        return asdict(self)

    def hash(self) -> str:
        return digest(stated(self))

    def label(self) -> str:
        batch = "" if self.concurrency == 1 else f" x{self.concurrency}"
        return f"{self.prompt_tokens}+{self.new_tokens}{batch}"
