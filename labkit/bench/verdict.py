"""Verdicts: what the samples of a paired bench say about each axis of a hypothesis, and about the whole.

Knows margins, claims and the Holm family; not how a sample was measured nor where a record goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from labkit.bench import statistics
from labkit.bench.statistics import MIN_UNITS, TIE, Array
from labkit.core.errors import LabkitError
from labkit.core.hypothesis import Hypothesis
from labkit.core.metrics import METRICS, Metric
from labkit.core.records import AxisResult, Verdict

ALPHA = 0.05
MIN_WINDOWS = 4
Goal = Literal["improves", "holds"]
Outcome = Literal["supported", "trade-off", "refuted", "undecided"]


@dataclass(frozen=True, slots=True)
class Samples:
    """The measured values of one metric, in run order; what a value stands for follows the metric's source.

    visit: one value per pair on each arm, in the metric's unit; positions: each pair's place in the run
    where failed pairs were left out (None: 0, 1, 2, ...), so that quads stay true halves of one ABBA.
    score: one value per window; `ppl_ratio` takes mean NLL in nats on both arms, `kl_mean_nats` and
    `top1_agreement` the candidate's values against the baseline. artifact: one value on each arm.
    """

    candidate: Sequence[float]
    baseline: Sequence[float] = ()
    positions: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One axis before Holm. estimate, low, high: log ratios (above 0 is better) or plain differences."""

    estimate: float
    low: float
    high: float
    n: int
    unit: Literal["pair", "quad", "window"]
    p_value: float
    verdict: Verdict
    notes: tuple[str, ...] = ()


def axis_verdicts(samples: Mapping[str, Samples], hypothesis: Hypothesis) -> tuple[AxisResult, ...]:
    """One AxisResult per axis of the hypothesis, improves first; all axes together are one Holm family.

    A metric without samples is an unresolved axis with n == 0, whose numbers are neutral and mean nothing.
    Raises LabkitError for an unknown metric, a bad margin, and non-finite or non-positive samples.
    """
    axes = [
        _axis(_known(name), goal, margin, samples.get(name)) for goal, name, margin in _claims(hypothesis)
    ]
    # An exact axis is no test, so it takes no part in the family.
    tested = [axis for axis in axes if METRICS[axis.metric].source != "artifact"]
    adjusted = iter(statistics.holm([axis.p_value for axis in tested]))
    return tuple(_holm_adjusted(a, next(adjusted), len(tested)) if a in tested else a for a in axes)


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


def classify(low: ArrayLike, high: ArrayLike, limit: float) -> Any:
    """The verdict of intervals `(...)` in log ratios against a margin ln(1 + m): array `(...)` of str.

    An end exactly on the margin (to rounding) is on neither side of it.
    """
    low, high = np.asarray(low), np.asarray(high)
    inside = (low + limit > TIE) & (limit - high > TIE)
    sides = [low - limit > TIE, -limit - high > TIE, inside]
    return np.select(sides, ["better", "worse", "equivalent"], default="unresolved")


def _claims(hypothesis: Hypothesis) -> Iterator[tuple[Goal, str, float]]:
    for name, margin in hypothesis.improves.items():
        yield "improves", name, margin
    for name, margin in hypothesis.holds.items():
        yield "holds", name, margin


def _known(name: str) -> Metric:
    if name not in METRICS:
        raise LabkitError("a known metric was needed in the hypothesis", got=name, options=sorted(METRICS))
    return METRICS[name]


def _axis(metric: Metric, goal: Goal, margin: float, sample: Samples | None) -> AxisResult:
    if not (np.isfinite(margin) and margin >= 0):
        raise LabkitError(f"the margin of {metric.name} must be a finite number >= 0", got=margin)
    if sample is None or len(sample.candidate) == 0:
        unit = "window" if metric.source == "score" else "pair"
        found = Finding(0.0, 0.0, 0.0, 0, unit, 1.0, "unresolved", ("no sample: it was not measured",))
    else:
        found = _JUDGES[metric.source, metric.scale](metric, margin, sample)
    notes = (*found.notes, *_held(goal, found, margin, metric))
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
        notes=notes,
    )


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


def _judge_visits(metric: Metric, margin: float, sample: Samples) -> Finding:
    """Pairs of visits: Hodges-Lehmann with the Walsh interval, in quads where pairs are autocorrelated."""
    d, limit = _log_ratios(metric, sample), float(np.log1p(margin))
    interval = statistics.paired_interval(d, sample.positions, 1 - ALPHA)
    units = statistics.quads(d, sample.positions) if interval.in_quads else d
    n, p_value = len(units), _smallest_p(statistics.signed_rank_p, units, limit)
    verdict = cast(Verdict, str(classify(interval.low, interval.high, limit)))
    notes = [f"sign-flip p {statistics.sign_flip_p(units):.3g} against no difference at all"]
    if interval.correlated:
        kept = "the unit is the quad" if interval.in_quads else f"under {MIN_UNITS} quads, so kept as pairs"
        notes.append(f"pairs autocorrelated (lag-1 {float(statistics.lag1(d)):+.2f}): {kept}")
    if n < MIN_UNITS:
        p_value, verdict = 1.0, "unresolved"
        notes.append(f"{n} pairs: at least {MIN_UNITS} are needed")
    ends = float(interval.estimate), float(interval.low), float(interval.high)
    return Finding(*ends, n, "quad" if interval.in_quads else "pair", p_value, verdict, tuple(notes))


def _smallest_p(test: Callable[[Array, float, Any], float], units: Array, limit: float) -> float:
    """The p of the claim with the smallest p, doubled: at .05 exactly dual to the 95% interval."""
    better, worse = test(units, limit, "greater"), test(units, -limit, "less")
    equivalent = max(test(units, -limit, "greater"), test(units, limit, "less"))
    return min(1.0, 2 * float(min(better, worse, equivalent)))


def _judge_perplexity(metric: Metric, margin: float, sample: Samples) -> Finding:
    """Windows: the t interval of the mean NLL difference, whose exponential is the perplexity ratio."""
    baseline, candidate = _both(metric, sample)
    d, limit = baseline - candidate, float(np.log1p(margin))
    mean, low, high = statistics.mean_interval(d, 1 - ALPHA)
    p_value = _smallest_p(statistics.mean_p, d, limit)
    return _of_windows((mean, low, high), len(d), p_value, str(classify(low, high, limit)))


def _judge_distance(metric: Metric, margin: float, sample: Samples) -> Finding:
    """Windows: how far the candidate is from the reference, which scores perfect against itself.

    Equivalent where the whole interval is within the margin or at it, worse where wholly above, never better.
    """
    lower, values = metric.better == "lower", _finite(metric, sample.candidate)
    distance = values if lower else 1.0 - values
    loss, low, high = statistics.mean_interval(distance, 1 - ALPHA)
    limit = margin + 2 * TIE
    verdict = "worse" if low - limit > TIE else "equivalent" if limit - high > TIE else "unresolved"
    sides = (statistics.mean_p(distance, limit, "greater"), statistics.mean_p(distance, limit, "less"))
    # A distance cannot be negative: only the shown interval is cut, the decision used it whole.
    ends = (loss, max(low, 0.0), high) if lower else (-loss, -high, -max(low, 0.0))
    return _of_windows(ends, len(values), 2 * min(sides), verdict)


def _of_windows(ends: tuple[float, float, float], n: int, p_value: float, verdict: str) -> Finding:
    if n < MIN_WINDOWS:
        if n == 1:  # no interval is claimed for one window
            ends = (ends[0], ends[0], ends[0])
        note = f"{n} windows: at least {MIN_WINDOWS} are needed"
        return Finding(*ends, n, "window", 1.0, "unresolved", (note,))
    return Finding(*ends, n, "window", p_value, cast(Verdict, verdict))


def _judge_artifact(metric: Metric, margin: float, sample: Samples) -> Finding:
    """A property of the artifact: exact, so its claim needs no test and costs the Holm family nothing."""
    d = _log_ratios(metric, sample)
    if np.ptp(d) > TIE:
        raise LabkitError(f"one value of {metric.name} per arm was needed", got=f"{len(d)} different ratios")
    value = float(d[0])
    verdict = cast(Verdict, str(classify(value, value, float(np.log1p(margin)))))
    note = "exact: measured on the artifact, not sampled"
    p_value = 1.0 if verdict == "unresolved" else 0.0
    return Finding(value, value, value, 1, "pair", p_value, verdict, (note,))


def _log_ratios(metric: Metric, sample: Samples) -> Array:
    """`(n,)` log ratios of candidate to baseline, turned so that above 0 is an improvement."""
    baseline, candidate = _both(metric, sample)
    if min(baseline.min(), candidate.min()) <= 0:
        got = float(min(baseline.min(), candidate.min()))
        raise LabkitError(f"positive values of {metric.name} were needed for a ratio", got=got)
    d = np.log(candidate) - np.log(baseline)
    return d if metric.better == "higher" else -d


def _both(metric: Metric, sample: Samples) -> tuple[Array, Array]:
    places = sample.candidate if sample.positions is None else sample.positions
    sizes = (len(sample.baseline), len(sample.candidate), len(places))
    if len(set(sizes)) > 1:
        raise LabkitError(
            f"as many values of {metric.name} on the baseline as on the candidate were needed",
            got=f"{sizes[0]} and {sizes[1]}, at {sizes[2]} positions",
        )
    return _finite(metric, sample.baseline), _finite(metric, sample.candidate)


def _finite(metric: Metric, values: Sequence[float]) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        bad = float(array[~np.isfinite(array)][0])
        raise LabkitError(f"finite values of {metric.name} were needed", got=bad)
    return array


_JUDGES: Mapping[tuple[str, str], Callable[[Metric, float, Samples], Finding]] = {
    ("visit", "ratio"): _judge_visits,
    ("score", "ratio"): _judge_perplexity,
    ("score", "absolute"): _judge_distance,
    ("artifact", "ratio"): _judge_artifact,
}
