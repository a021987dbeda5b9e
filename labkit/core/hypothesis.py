"""Hypothesis: what an experiment claims, with a margin for every axis it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
