"""Judges: what the samples of one metric say about its margin, by the source and the scale of the metric.

Knows margins, the A/A floor and the level of a look; not the other axes of the experiment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from labkit.bench import statistics
from labkit.bench.sequential import ALPHA, Look, sequential_p
from labkit.bench.statistics import MIN_UNITS, TIE, Array
from labkit.core.errors import LabkitError
from labkit.core.metrics import Metric
from labkit.core.records import Verdict

MIN_WINDOWS = 4


@dataclass(frozen=True, slots=True)
class Samples:
    """The measured values of one metric, in run order; what a value stands for follows the metric's source.

    visit: one value per pair on each arm, in the metric's unit.
    score: one value per window; `ppl_ratio` takes mean NLL in nats on both arms, `kl_mean_nats` and
    `top1_agreement` the candidate's values against the baseline. artifact: one value on each arm.
    """

    candidate: Sequence[float]
    baseline: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Terms:
    """What an axis is judged by. margin, floor, bias: a ratio less 1, or in the metric's unit.

    floor: how far apart two equal arms may lie. bias: how far apart they did lie beyond any chance. look: the
    one that visits are judged at.
    """

    metric: Metric
    margin: float
    floor: float
    look: Look
    bias: float = 0.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One axis before Holm. estimate, low, high: log ratios (above 0 is better) or plain differences.

    alpha: the interval is one of 1 - alpha. p_value: at most 0.05 exactly where the verdict stands alone.
    """

    estimate: float
    low: float
    high: float
    n: int
    unit: Literal["pair", "window"]
    p_value: float
    verdict: Verdict
    notes: tuple[str, ...] = ()
    alpha: float = ALPHA


def judge(terms: Terms, sample: Samples) -> Finding:
    """The finding on one metric. Raises LabkitError for non-finite, unequal and non-positive samples."""
    return _JUDGES[terms.metric.source, terms.metric.scale](terms, sample)


def classify(low: ArrayLike, high: ArrayLike, limit: float, floor: float = 0.0, bias: float = 0.0) -> Any:
    """The verdict of intervals `(...)` against a margin, all in log ratios or all in a unit: `(...)` of str.

    limit: the margin. bias: what two equal arms differed by beyond chance; a difference must be beyond that
    too. floor: what they may differ by with chance; above the margin it leaves nothing equivalent. It does
    not stand in the way of a difference, whose interval holds the chance already. An end exactly on a limit
    (to rounding) is on neither side of it.
    """
    low, high, beyond = np.asarray(low), np.asarray(high), max(limit, bias)
    inside = (low + limit > TIE) & (limit - high > TIE) & (floor <= limit)
    sides = [low - beyond > TIE, -beyond - high > TIE, inside]
    return np.select(sides, ["better", "worse", "equivalent"], default="unresolved")


def _judge_ratios(terms: Terms, sample: Samples) -> Finding:
    """Visits by log ratio."""
    limits = Limits(*(float(np.log1p(x)) for x in (terms.margin, terms.floor, terms.bias)))
    return _judge_pairs(terms, _log_ratios(terms.metric, sample), limits)


def _judge_differences(terms: Terms, sample: Samples) -> Finding:
    """Visits by difference in the unit: judged as improvement, shown as candidate less baseline."""
    baseline, candidate = _both(terms.metric, sample)
    limits = Limits(terms.margin, terms.floor, terms.bias)
    if terms.metric.better == "higher":
        return _judge_pairs(terms, candidate - baseline, limits)
    found = _judge_pairs(terms, baseline - candidate, limits)
    # 0.0 - x, so that no difference at all is no negative zero.
    ends = (0.0 - found.estimate, 0.0 - found.high, 0.0 - found.low)
    return Finding(*ends, found.n, "pair", found.p_value, found.verdict, found.notes, found.alpha)


class Limits(NamedTuple):
    """The margin, floor and bias of an axis on the scale of its pairs: log ratios, or the metric's unit."""

    margin: float
    floor: float
    bias: float


def _judge_pairs(terms: Terms, d: Array, limits: Limits) -> Finding:
    """Hodges-Lehmann with the Walsh interval of the look; d `(n,)`: improvements, one for each pair."""
    alpha, stretches = terms.look.alpha, terms.look.stretches(len(d))
    low, high = statistics.walsh_interval(d, 1 - alpha, stretches)
    nominal = _pairs_p(d, stretches, limits)
    p_value = sequential_p(nominal, terms.look.planned, terms.look.index)
    verdict = cast(Verdict, str(classify(low, high, *limits)))
    few = tuple(_too_few(stretches, alpha))
    if few:
        p_value, verdict = 1.0, "unresolved"
    notes = (*_about_pairs(terms, d), *few, *_about_floor(terms, verdict))
    ends = float(statistics.hodges_lehmann(d, stretches)), float(low), float(high)
    return Finding(*ends, len(d), "pair", p_value, verdict, notes, alpha)


def _pairs_p(d: Array, stretches: tuple[int, ...], limits: Limits) -> float:
    """Of the claims that the floor leaves the smallest p, doubled; exactly dual to `classify`."""
    limit, beyond = limits.margin, max(limits.margin, limits.bias)

    def p(shift: float, side: Literal["greater", "less"]) -> float:
        return float(statistics.signed_rank_p(d, shift, side, stretches))

    inside = max(p(-limit, "greater"), p(limit, "less")) if limits.floor <= limit else 1.0
    return min(1.0, 2 * min(p(beyond, "greater"), p(-beyond, "less"), inside))


def _about_pairs(terms: Terms, d: Array) -> Iterator[str]:
    yield f"sign-flip p {statistics.sign_flip_p(d):.3g} against no difference at all"
    looks = len(terms.look.planned)
    if looks > 1:
        yield f"look {terms.look.index + 1} of {looks}: an interval of {1 - terms.look.alpha:.2%}"


def _too_few(stretches: tuple[int, ...], alpha: float) -> Iterator[str]:
    """Why so few pairs decide nothing, if that is so."""
    n = sum(stretches)
    if n < MIN_UNITS:
        yield f"{n} pairs: at least {MIN_UNITS} are needed"
    elif statistics.signed_rank_critical(stretches, alpha / 2) < 0:
        yield f"{n} pairs: their smallest p is above the {alpha:.2g} of this look"


def _about_floor(terms: Terms, verdict: Verdict) -> Iterator[str]:
    if terms.floor > terms.margin and verdict == "unresolved":
        ratio = terms.metric.scale == "ratio"
        floor, margin = (
            f"{value:.2%}" if ratio else f"{value:.3g} {terms.metric.unit}"
            for value in (terms.floor, terms.margin)
        )
        todo = "more pairs, a quieter machine or a wider margin would help"
        yield f"the A/A floor of {floor} exceeds the margin of {margin}, so nothing is equivalent: {todo}"


def _judge_perplexity(terms: Terms, sample: Samples) -> Finding:
    """Windows: the t interval of the mean NLL difference, whose exponential is the perplexity ratio."""
    baseline, candidate = _both(terms.metric, sample)
    d, limit = baseline - candidate, float(np.log1p(terms.margin))
    mean, low, high = statistics.mean_interval(d, 1 - ALPHA)
    better, worse = statistics.mean_p(d, limit, "greater"), statistics.mean_p(d, -limit, "less")
    inside = max(statistics.mean_p(d, -limit, "greater"), statistics.mean_p(d, limit, "less"))
    p_value = min(1.0, 2 * min(better, worse, inside))
    return _of_windows((mean, low, high), len(d), p_value, str(classify(low, high, limit)))


def _judge_distance(terms: Terms, sample: Samples) -> Finding:
    """Windows: how far the candidate is from the reference, which scores perfect against itself.

    Equivalent where the whole interval is within the margin or at it, worse where wholly above, never better.
    """
    lower, values = terms.metric.better == "lower", _finite(terms.metric, sample.candidate)
    distance = values if lower else 1.0 - values
    loss, low, high = statistics.mean_interval(distance, 1 - ALPHA)
    limit = terms.margin + 2 * TIE
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


def _judge_artifact(terms: Terms, sample: Samples) -> Finding:
    """A property of the artifact: exact, so its claim needs no test and costs the Holm family nothing."""
    d = _log_ratios(terms.metric, sample)
    if np.ptp(d) > TIE:
        need = f"one value of {terms.metric.name} per arm was needed"
        raise LabkitError(need, got=f"{len(d)} different ratios")
    value = float(d[0])
    verdict = cast(Verdict, str(classify(value, value, float(np.log1p(terms.margin)))))
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
    sizes = (len(sample.baseline), len(sample.candidate))
    if len(set(sizes)) > 1:
        raise LabkitError(
            f"as many values of {metric.name} on the baseline as on the candidate were needed",
            got=f"{sizes[0]} and {sizes[1]}",
        )
    return _finite(metric, sample.baseline), _finite(metric, sample.candidate)


def _finite(metric: Metric, values: Sequence[float]) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        bad = float(array[~np.isfinite(array)][0])
        raise LabkitError(f"finite values of {metric.name} were needed", got=bad)
    return array


_JUDGES: Mapping[tuple[str, str], Callable[[Terms, Samples], Finding]] = {
    ("visit", "ratio"): _judge_ratios,
    ("visit", "absolute"): _judge_differences,
    ("score", "ratio"): _judge_perplexity,
    ("score", "absolute"): _judge_distance,
    ("artifact", "ratio"): _judge_artifact,
}
