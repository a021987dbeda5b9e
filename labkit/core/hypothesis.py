"""Hypothesis: what an experiment claims, with a margin for every axis it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from labkit.core.metrics import METRICS


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """improves: metric -> margin to beat. holds: metric -> margin not to lose.

    A ratio metric's margin m stands for |log ratio| <= ln(1 + m); an absolute one's is in its unit.
    """

    statement: str
    improves: Mapping[str, float] = field(default_factory=dict)
    holds: Mapping[str, float] = field(default_factory=dict)

    def margins(self) -> dict[str, float]:
        return {**self.improves, **self.holds}

    def tested(self) -> tuple[str, ...]:
        """The axes of its Holm family: those that visits and scores measure; an artifact's are exact."""
        return tuple(m for m in self.margins() if m in METRICS and METRICS[m].source != "artifact")
