"""Axis plan: how many pairs one axis of an experiment needs, from the pairs of a pilot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from labkit.bench.pairs import ROLES
from labkit.bench.power import Claim, look_chances, plan_from_pilot, plan_pairs
from labkit.bench.sequential import look_pairs
from labkit.core.metrics import METRICS, Metric
from labkit.lab.experiment import Experiment
from labkit.lab.measuring.measured import Measured

# What the margin of a difference is set to in logs, and the farthest that its effect is then taken to lie.
_UNIT, _FAR = 0.05, 10.0


@dataclass(frozen=True, slots=True)
class AxisPlan:
    """sd: upper 80% bound of the SD of a pair. effect: improvement seen in the pilot. Both, and the margin,
    are ratios less 1 (sd: of log ratios) or in the metric's unit, as scale says. claim: the verdict planned
    for, at `planned_effect`. pairs: the most that it takes, None where no number will do; reason: why.
    expected: the mean number where this axis alone decides at which look to stop. minutes: of the pairs.
    """

    metric: str
    title: str
    goal: str
    scale: Literal["ratio", "absolute"]
    unit: str
    margin: float
    sd: float
    effect: float
    claim: Claim
    planned_effect: float
    pairs: int | None
    reason: str
    expected: float | None = None
    minutes: float | None = None


def plan_axis(experiment: Experiment, measured: Measured, pairs: list[int], metric: str) -> AxisPlan:
    """The plan of an axis that visits measure."""
    about, margins = METRICS[metric], experiment.hypothesis.margins()
    improvement = _improvements(measured, about, pairs)
    sd, middle = plan_from_pilot(improvement.tolist()), float(np.median(improvement))
    margin = margins[metric]
    goal = "improves" if metric in experiment.hypothesis.improves else "holds"
    claim, planned = _planned(goal, middle, math.log1p(margin) if about.scale == "ratio" else margin)
    terms = _terms(about.scale, sd, margin, _shown(planned, about))
    found = plan_pairs(*terms, claim, axes=len(margins), looks=experiment.looks)
    return AxisPlan(
        metric=metric,
        title=about.title,
        goal=goal,
        scale=about.scale,
        unit=about.unit,
        margin=margin,
        sd=sd,
        effect=_shown(middle, about),
        claim=claim,
        planned_effect=_shown(planned, about),
        pairs=found.pairs,
        reason=found.reason if about.scale == "ratio" or found.pairs else _never(about, planned, margin),
        expected=found.expected,
    )


def expected_pairs(axes: Sequence[AxisPlan], looks: int, family: int) -> float | None:
    """The mean number of pairs up to the look at which every axis is decided, the axes taken as independent.

    family: how many axes the hypothesis has. None where some axis is decided by no number of pairs, or none
    by any, so that no look would stop the run.
    """
    most = max((axis.pairs for axis in axes if axis.pairs is not None), default=None)
    if most is None:
        return None
    if looks == 1 or any(axis.pairs is None for axis in axes):
        return float(most)
    planned = look_pairs(most, looks)
    by_then = np.prod([np.cumsum(_chances(axis, planned, family)) for axis in axes], axis=0)
    stops = np.diff([0.0, *by_then[:-1], 1.0])
    return float(np.dot(stops, planned))


def _chances(axis: AxisPlan, planned: tuple[int, ...], family: int) -> tuple[float, ...]:
    terms = _terms(axis.scale, axis.sd, axis.margin, axis.planned_effect)
    return look_chances(planned, *terms, axis.claim, axes=family)


def _terms(scale: str, sd: float, margin: float, effect: float) -> tuple[float, float, float]:
    """SD, margin and effect as ratios, which `power` knows: only their sizes relative to each other count."""
    if scale == "ratio":
        return sd, margin, effect
    unit = _UNIT / margin
    far = min(max(effect * unit, -_FAR), _FAR)
    return sd * unit, math.expm1(_UNIT), math.expm1(far)


def _improvements(measured: Measured, about: Metric, pairs: list[int]) -> np.ndarray:
    """`(pairs,)` log ratios, or differences in the unit, turned so that above 0 is better."""
    baseline, candidate = (np.asarray(measured.values(role, about.name, pairs)) for role in ROLES)
    if about.scale == "ratio":
        baseline, candidate = np.log(baseline), np.log(candidate)
    return candidate - baseline if about.better == "higher" else baseline - candidate


def _planned(goal: str, middle: float, limit: float) -> tuple[Claim, float]:
    """The verdict to plan for, and the effect, in logs or in the unit."""
    if abs(middle) >= limit:
        return ("better" if middle > 0 else "worse"), middle
    # A held axis that looks like a tie is planned at a true tie, the case its author hopes for.
    return "equivalent", 0.0 if goal == "holds" else middle


def _shown(middle: float, about: Metric) -> float:
    return math.expm1(middle) if about.scale == "ratio" else middle


def _never(about: Metric, effect: float, margin: float) -> str:
    return (
        f"never, or beyond any number of pairs: an effect of {effect:+.3g} {about.unit} is too near to the "
        f"margin of {margin:.3g} {about.unit} for its noise"
    )
