"""Verdicts: what the samples of a paired bench say about each axis of a hypothesis, and about the whole.

Knows goals and the Holm family; how one axis is judged is in `judges`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

import numpy as np

from labkit.bench import statistics
from labkit.bench.judges import MIN_WINDOWS, Finding, Samples, Terms, classify, judge
from labkit.bench.sequential import ALPHA, ONE_LOOK, Look
from labkit.bench.statistics import MIN_UNITS
from labkit.core.errors import LabkitError
from labkit.core.hypothesis import Hypothesis
from labkit.core.metrics import METRICS, Metric
from labkit.core.records import AxisResult

__all__ = ["ALPHA", "MIN_WINDOWS", "NO_FLOORS", "Samples", "axis_verdicts", "classify", "decided", "outcome"]

Goal = Literal["improves", "holds"]
Outcome = Literal["supported", "trade-off", "refuted", "undecided"]
NO_FLOORS: Mapping[str, float] = MappingProxyType({})


def axis_verdicts(
    samples: Mapping[str, Samples],
    hypothesis: Hypothesis,
    look: Look = ONE_LOOK,
    floors: Mapping[str, float] = NO_FLOORS,
    biases: Mapping[str, float] = NO_FLOORS,
) -> tuple[AxisResult, ...]:
    """One AxisResult per axis of the hypothesis, improves first; all axes together are one Holm family.

    look: the level of the axes that visits measure; scores and artifacts are judged once, at 0.05 and
    exactly. floors, biases: metric -> how far apart two equal arms may lie, and did lie beyond chance, as a
    ratio less 1 or in the metric's unit; for the axes that visits measure, see `classify`. A metric without
    samples is an unresolved axis with n == 0, whose numbers mean nothing. Raises LabkitError for an
    unknown metric, a bad margin or floor, and non-finite or non-positive samples.
    """
    axes = [
        _axis(goal, _terms(_known(name), margin, look, floors, biases), samples.get(name))
        for goal, name, margin in _claims(hypothesis)
    ]
    # An exact axis is no test, so it takes no part in the family.
    family = hypothesis.tested()
    tested = [axis for axis in axes if axis.metric in family]
    adjusted = iter(statistics.holm([axis.p_value for axis in tested]))
    return tuple(_holm_adjusted(a, next(adjusted), len(tested)) if a in tested else a for a in axes)


def decided(axes: Sequence[AxisResult]) -> bool:
    """Whether more visits would decide nothing: every axis that they measure has a verdict."""
    return all(a.verdict != "unresolved" for a in axes if METRICS[a.metric].source == "visit")


def outcome(axes: Sequence[AxisResult]) -> Outcome:
    """The word for the whole experiment; `supported` is not said while an axis is unresolved.

    refuted: an improvement did not come, or, where none was claimed, something was lost.
    trade-off: every improvement came, and something that should hold was lost.
    """
    improves = [a.verdict for a in axes if a.goal == "improves"]
    lost = any(a.goal == "holds" and a.verdict == "worse" for a in axes)
    if any(v in ("worse", "equivalent") for v in improves) or (lost and not improves):
        return "refuted"
    won = bool(improves) and all(v == "better" for v in improves)
    if won and lost:  # whatever the unresolved axes turn out to be
        return "trade-off"
    if not axes or any(a.verdict == "unresolved" for a in axes):
        return "undecided"
    return "trade-off" if lost else "supported"


def _claims(hypothesis: Hypothesis) -> Iterator[tuple[Goal, str, float]]:
    for name, margin in hypothesis.improves.items():
        yield "improves", name, margin
    for name, margin in hypothesis.holds.items():
        yield "holds", name, margin


def _known(name: str) -> Metric:
    if name not in METRICS:
        raise LabkitError("a known metric was needed in the hypothesis", got=name, options=sorted(METRICS))
    return METRICS[name]


def _terms(
    metric: Metric, margin: float, look: Look, floors: Mapping[str, float], biases: Mapping[str, float]
) -> Terms:
    visited = metric.source == "visit"
    floor, bias = (known.get(metric.name, 0.0) if visited else 0.0 for known in (floors, biases))
    for what, value in (("margin", margin), ("A/A floor", floor), ("A/A bias", bias)):
        if not (np.isfinite(value) and value >= 0):
            raise LabkitError(f"the {what} of {metric.name} must be a finite number >= 0", got=value)
    return Terms(metric, margin, float(floor), look, float(bias))


def _axis(goal: Goal, terms: Terms, sample: Samples | None) -> AxisResult:
    metric, margin = terms.metric, terms.margin
    found = _unmeasured(terms) if sample is None or len(sample.candidate) == 0 else judge(terms, sample)
    ends = (found.estimate, found.low, found.high)
    shown = tuple(float(np.exp(e)) if metric.scale == "ratio" else float(e) for e in ends)
    return AxisResult(
        metric=metric.name,
        goal=goal,
        margin=margin,
        scale=metric.scale,
        estimate=shown[0],
        low=shown[1],
        high=shown[2],
        n=found.n,
        unit=found.unit,
        p_value=found.p_value,
        p_holm=found.p_value,
        verdict=found.verdict,
        notes=(*found.notes, *_held(goal, found, margin, metric)),
        alpha=found.alpha,
        floor=terms.floor,
    )


def _unmeasured(terms: Terms) -> Finding:
    unit = "window" if terms.metric.source == "score" else "pair"
    alpha = terms.look.alpha if terms.metric.source == "visit" else ALPHA
    note = "no sample: it was not measured"
    return Finding(0.0, 0.0, 0.0, 0, unit, 1.0, "unresolved", (note,), alpha)


def _held(goal: Goal, found: Finding, margin: float, metric: Metric) -> Iterator[str]:
    """What an unresolved axis still shows: that it does not lose the margin, though it may gain more."""
    enough = found.n >= MIN_UNITS and found.verdict == "unresolved" and metric.scale == "ratio"
    if goal == "holds" and enough and found.low > -np.log1p(margin):
        yield "not worse: the interval lies above the margin's lower end"


def _holm_adjusted(axis: AxisResult, p_holm: float, family: int) -> AxisResult:
    if axis.verdict == "unresolved" or p_holm <= ALPHA:
        return replace(axis, p_holm=p_holm)
    note = f"{axis.verdict} alone, but p {p_holm:.3g} after Holm over {family} axes exceeds {ALPHA:g}"
    return replace(axis, p_holm=p_holm, verdict="unresolved", notes=(*axis.notes, note))
