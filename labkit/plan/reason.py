"""Reason and Refusal: why a request cannot run, every reason and never only the first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from labkit.core.errors import PlanRefused


@dataclass(frozen=True, slots=True)
class Reason:
    """One refusal: the field, what it needs, what it got, the valid options and the next step."""

    field: str
    need: str
    got: str
    options: tuple[str, ...] = ()
    next_step: str = ""

    def explain(self) -> str:
        lines = [f"{self.field}: {self.need}, got {self.got}"]
        if self.options:
            lines.append(f"    options: {', '.join(self.options)}")
        if self.next_step:
            lines.append(f"    next:    {self.next_step}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Every reason why a request cannot run on a model, never only the first."""

    model: str
    reasons: tuple[Reason, ...]

    def explain(self) -> str:
        body = "\n".join(f"- {reason.explain()}" for reason in self.reasons)
        return f"{self.model} cannot run this request:\n{body}"

    def error(self) -> PlanRefused:
        return PlanRefused(self.explain())


def spans(indices: Iterable[int]) -> str:
    """Indices in rising order as text: `0-2, 5, 8-9`."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
