"""Axis plan: how many pairs one axis of an experiment needs, from the pairs of a pilot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from labkit.bench.floor import biases
from labkit.bench.pairs import ROLES
from labkit.bench.power import MAX_PAIRS, Claim, PairPlan, look_chances, plan_from_pilot, plan_pairs
from labkit.bench.sequential import look_pairs
from labkit.core.metrics import METRICS, Metric
from labkit.lab.experiment import Experiment
from labkit.lab.measuring.floor import Floor
from labkit.lab.measuring.measured import Measured

# What the margin of a difference is set to in logs, and the farthest that its effect is then taken to lie.
_UNIT, _FAR = 0.05, 10.0


@dataclass(frozen=True, slots=True)
class AxisPlan:
    """sd: upper 80% bound of the SD of a pair. effect: improvement seen in the pilot. Both, and the margin,
    are ratios less 1 (sd: of log ratios) or in the metric's unit, as scale says. claim: the verdict planned
    for, at `planned_effect`. pairs: the most that it takes, None where no number will do; reason: why.
    expected: the mean number where this axis alone decides at which look to stop. minutes: of the pairs.
    bias: what two equal arms differed by beyond chance, which a difference has to exceed as well. least: with
    fewer pairs the A/A floor is above the margin of an `equivalent`; None where it is with any number.
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
    bias: float = 0.0
    least: int | None = 0

    @property
    def limit(self) -> float:
        """What the effect is to lie beyond, or within."""
        return self.margin if self.claim == "equivalent" else max(self.margin, self.bias)


def plan_axis(
    experiment: Experiment, measured: Measured, pairs: list[int], metric: str, floor: Floor | None = None
) -> AxisPlan:
    """The plan of an axis that visits measure. floor: the A/A control that the run will rest on."""
    about, margin = METRICS[metric], experiment.hypothesis.margins()[metric]
    improvement = _improvements(measured, about, pairs)
    sd, middle = plan_from_pilot(improvement.tolist()), float(np.median(improvement))
    goal = "improves" if metric in experiment.hypothesis.improves else "holds"
    claim, planned = _planned(goal, middle, math.log1p(margin) if about.scale == "ratio" else margin)
    axis = AxisPlan(
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
        pairs=None,
        reason="",
        bias=biases(floor.spreads).get(metric, 0.0) if floor else 0.0,
        least=_least(floor, metric, margin) if floor and claim == "equivalent" else 0,
    )
    found = _found(axis, experiment)
    return replace(axis, pairs=found.pairs, reason=found.reason, expected=found.expected)


def _least(floor: Floor, metric: str, margin: float) -> int | None:
    """The fewest pairs whose A/A floor is within the margin; None where that of the largest number is not."""
    found = (pairs for pairs in range(1, MAX_PAIRS + 1) if floor.at(pairs).get(metric, 0.0) <= margin)
    return next(found, None)


def _found(axis: AxisPlan, experiment: Experiment) -> PairPlan:
    """The pairs of an axis, with a reason in the axis's own unit where there are none."""
    if axis.least is None:
        return PairPlan(None, _above(axis))
    family, looks = len(experiment.hypothesis.tested()), experiment.looks
    found = plan_pairs(*_terms(axis), axis.claim, axes=family, looks=looks, least=axis.least)
    if found.pairs is None and axis.limit > axis.margin:
        return replace(found, reason=_beside_bias(axis))
    if found.pairs is None and axis.scale == "absolute":
        return replace(found, reason=_never(axis))
    return found


def expected_pairs(axes: Sequence[AxisPlan], looks: int, family: int) -> float | None:
    """The mean number of pairs up to the look at which every axis is decided, the axes taken as independent.

    family: how many axes are tested. None where some axis is decided by no number of pairs, or none
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
    return look_chances(planned, *_terms(axis), axis.claim, axes=family, least=axis.least or 0)


def _terms(axis: AxisPlan) -> tuple[float, float, float]:
    """SD, limit and effect as ratios, which `power` knows: only their sizes relative to each other count."""
    if axis.scale == "ratio":
        return axis.sd, axis.limit, axis.planned_effect
    unit = _UNIT / axis.limit
    far = min(max(axis.planned_effect * unit, -_FAR), _FAR)
    return axis.sd * unit, math.expm1(_UNIT), math.expm1(far)


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


def _never(axis: AxisPlan) -> str:
    effect, margin = _amount(axis, axis.planned_effect, "+"), _amount(axis, axis.margin)
    return (
        f"never, or beyond any number of pairs: an effect of {effect} is too near to the margin of {margin} "
        "for its noise"
    )


def _above(axis: AxisPlan) -> str:
    """Why no number of pairs makes an axis equivalent."""
    margin = _amount(axis, axis.margin)
    if axis.bias > axis.margin:
        bias = _amount(axis, axis.bias)
        return f"never: two equal arms differed by {bias} beyond chance, above the margin of {margin}"
    return (
        f"more than {MAX_PAIRS} pairs: the A/A floor is above the margin of {margin} with fewer; an A/A "
        "control of more pairs, a quieter machine or a wider margin would help"
    )


def _beside_bias(axis: AxisPlan) -> str:
    """Why no number of pairs shows a difference that may be one between equal arms."""
    effect, bias = _amount(axis, axis.planned_effect, "+"), _amount(axis, axis.bias)
    return (
        f"never, or beyond {MAX_PAIRS} pairs: two equal arms differed by {bias} beyond chance, which the "
        f"effect of {effect} does not exceed by enough for its noise"
    )


def _amount(axis: AxisPlan, value: float, sign: str = "") -> str:
    return f"{value:{sign}.2%}" if axis.scale == "ratio" else f"{value:{sign}.3g} {axis.unit}"
