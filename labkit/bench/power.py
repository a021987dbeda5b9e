"""Power: how many pairs a margin needs, given how much a pair of visits varies.

Knows the paired test, its looks and the Holm family; not how a pilot is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from labkit.bench.sequential import Look, Region, look_alpha, look_pairs, stop_probabilities
from labkit.bench.statistics import MIN_UNITS, TIE, attained_level, signed_rank_critical
from labkit.core.errors import LabkitError

Claim = Literal["better", "worse", "equivalent"]
# Pitman efficiency of the signed-rank against the t test on normal differences (Hodges & Lehmann 1956).
SIGNED_RANK_EFFICIENCY = 3 / np.pi
PILOT_CONFIDENCE = 0.80
MAX_PAIRS = 1000


@dataclass(frozen=True, slots=True)
class PairPlan:
    """pairs: how many the claim needs, None where no number up to the largest will do. reason: why.

    looks: at how many equally spaced points of the run it is looked at; `pairs` is then the most that it
    takes. expected: the mean number where it stops at the look that makes this claim; as `pairs` where there
    is one look. power: the chance that the claim is made within `pairs`.
    """

    pairs: int | None
    reason: str
    expected: float | None = None
    looks: int = 1
    power: float | None = None


def plan_from_pilot(pairs: Sequence[float]) -> float:
    """SD of a pair's log ratio to plan with: the chi-square upper 80% confidence bound of the pilot's SD.

    One pilot in five still understates it; with 4 pairs the bound is 1.7 times the pilot's own SD, with 8
    1.35 times. pairs: the pilot's log ratios, which are not used again in the run. Raises LabkitError
    below 3 pairs.
    """
    values = np.asarray(pairs, dtype=np.float64)
    if values.ndim != 1 or len(values) < 3 or not np.isfinite(values).all():
        raise LabkitError(
            "a pilot of at least 3 pairs with finite log ratios was needed", got=values.tolist()
        )
    freedom = len(values) - 1
    return float(values.std(ddof=1) * np.sqrt(freedom / special.chdtri(freedom, PILOT_CONFIDENCE)))


def plan_pairs(
    sd_log_ratio: float,
    margin: float,
    effect: float,
    goal: Claim,
    alpha: float = 0.05,
    axes: int = 1,
    power: float = 0.95,
    looks: int = 1,
    least: int = 0,
) -> PairPlan:
    """The fewest pairs, at least 8 for each look, with which the claim is found with `power`.

    sd_log_ratio: SD of one pair's log ratio. margin: ratio m, |log ratio| <= ln(1 + m). effect: the true
    improvement as a ratio less 1 (0.10: 10% better, -0.10: 10% worse, 0: a tie). axes: the size of the
    Holm family, whose hardest step alpha / axes the claim must pass. looks: how often the run is looked at,
    which takes some more pairs at most and fewer on average. least: with fewer pairs the claim is not made,
    as with an A/A floor above the margin. Raises LabkitError for values outside their range.
    """
    _check(sd_log_ratio, margin, effect, goal, alpha, axes, power, looks)
    shifts = _distances(margin, effect, goal)
    if min(shifts) <= TIE:
        return PairPlan(None, _never(margin, effect, goal), looks=looks)
    scaled = [shift / max(sd_log_ratio, TIE) for shift in shifts]
    fewest = max(MIN_UNITS * looks, least)
    for pairs in range(_start(scaled, alpha / axes, power, fewest), MAX_PAIRS + 1):
        planned = look_pairs(pairs, looks)
        found = chances(planned, scaled, alpha / axes, least)
        if sum(found) >= power:
            stops = [*found[:-1], 1 - sum(found[:-1])]
            expected = float(np.dot(stops, planned))
            reason = _reason(pairs, alpha / axes, looks, least)
            return PairPlan(pairs, reason, expected, looks, sum(found))
    reason = f"more than {MAX_PAIRS} pairs: the noise is too large for this margin and effect"
    return PairPlan(None, reason, looks=looks)


def look_chances(
    planned: Sequence[int],
    sd_log_ratio: float,
    margin: float,
    effect: float,
    goal: Claim,
    alpha: float = 0.05,
    axes: int = 1,
    least: int = 0,
) -> tuple[float, ...]:
    """The chance that the claim is made first at each look of a run. planned: the pairs at each, ascending.

    The rest is as in `plan_pairs`. An effect on the margin, or on its wrong side, makes no claim: all are 0.
    """
    shifts = _distances(margin, effect, goal)
    if min(shifts) <= TIE:
        return (0.0,) * len(planned)
    return chances(planned, [shift / max(sd_log_ratio, TIE) for shift in shifts], alpha / axes, least)


def _start(distances: Sequence[float], alpha: float, power: float, least: int) -> int:
    """A number of pairs that is not above the answer: what one look takes, by halving, less some.

    Power rises with the pairs but for the steps of the exact test, which a few pairs make up for. Above the
    largest number where that will not do.
    """
    low, high = least, MAX_PAIRS + 1
    while low < high:
        middle = (low + high) // 2
        enough = sum(chances((middle,), distances, alpha)) >= power
        low, high = (low, middle) if enough else (middle + 1, high)
    return low if low > MAX_PAIRS else max(least, low - 8)


def _distances(margin: float, effect: float, goal: Claim) -> tuple[float, ...]:
    """How far the true log ratio lies on the claim's side of the margin, or of both margins."""
    centre, limit = float(np.log1p(effect)), float(np.log1p(margin))
    sides = {"better": (centre - limit,), "worse": (-centre - limit,)}
    return sides.get(goal, (limit + centre, limit - centre))


def chances(
    planned: Sequence[int], distances: Sequence[float], alpha: float, least: int = 0
) -> tuple[float, ...]:
    """The chance that the claim is made first at each look; distances are in SDs of a pair.

    least: a look at fewer pairs makes no claim.

    Each test of a look alone has the power of a noncentral t at the level that the discrete test really has
    with so many pairs, with the pairs scaled by the efficiency. Looks hang together as those of a Brownian
    motion, whose boundaries are set to have these powers.
    """
    drift = float(distances[0] * np.sqrt(planned[-1] * SIGNED_RANK_EFFICIENCY))
    regions: list[Region] = []
    for index, pairs in enumerate(planned):
        stretches = Look(tuple(planned), index).stretches(pairs)
        tail = attained_level(stretches, look_alpha(planned, index, alpha) / 2)
        misses = [_miss(stretches, tail if pairs >= least else 0.0, distance) for distance in distances]
        regions.append(_region(drift * np.sqrt(pairs / planned[-1]), misses))
    return stop_probabilities(planned, regions, drift)


def _region(mean: float, misses: Sequence[float]) -> Region:
    """Where z makes the claim: above one boundary, and with two sides below another, each as often missed.

    z counts from the first side's margin. Beyond 12 SDs a chance is 0 or 1 to double precision.
    """
    reach = [float(np.clip(special.ndtri(miss), -12, 12)) for miss in misses]
    return (mean + reach[0], np.inf) if len(reach) == 1 else (mean + reach[0], mean - reach[1])


def _miss(stretches: Sequence[int], tail: float, distance: float) -> float:
    """The chance that a one-sided test at the level `tail` does not reject: P(noncentral t <= its reach).

    Beyond 15 past the reach it is 0 to double precision.
    """
    if tail <= 0:
        return 1.0
    pairs = sum(stretches)
    kept = SIGNED_RANK_EFFICIENCY * _efficacy(stretches) / _efficacy((pairs,))
    reach, centre = special.stdtrit(pairs - 1, 1 - tail), distance * np.sqrt(pairs * kept)
    return 0.0 if centre > 3 * reach + 15 else float(special.nctdtr(pairs - 1, centre, reach))


def _efficacy(stretches: Sequence[int]) -> float:
    """How fast the signed-rank sum of normal differences moves with their mean, squared, over its variance.

    A unit passes 0 with the density 1/sqrt(2 pi) per SD, the mean of two with sqrt(2) times that.
    """
    slope = sum(n + n * (n - 1) / np.sqrt(2) for n in stretches)
    return float(slope**2 / sum(n * (n + 1) * (2 * n + 1) for n in stretches))


def _never(margin: float, effect: float, goal: Claim) -> str:
    where = "on" if abs(min(_distances(margin, effect, goal))) <= TIE else "on the wrong side of"
    return f"never: an effect of {effect:+.2%} lies {where} the margin of {margin:.2%} for the claim {goal!r}"


def _reason(pairs: int, alpha: float, looks: int, least: int) -> str:
    reachable = next(n for n in range(1, MAX_PAIRS) if signed_rank_critical((n,), alpha / 2) >= 0)
    if pairs == least > max(MIN_UNITS * looks, reachable):
        return f"with fewer than {least} pairs the A/A floor is above the margin"
    if pairs > max(MIN_UNITS * looks, reachable):
        return "the noise and the distance from the margin set the number"
    if reachable > MIN_UNITS * looks:
        return f"the smallest p of fewer than {reachable} pairs is above alpha after Holm"
    each = "" if looks == 1 else f", and there are {looks} looks"
    return f"{MIN_UNITS} pairs are the least that any verdict rests on{each}"


def _check(
    sd: float, margin: float, effect: float, goal: str, alpha: float, axes: int, power: float, looks: int
) -> None:
    claims = ("better", "worse", "equivalent")
    rules = (
        ("the SD of the log ratio must be a finite number >= 0", sd, np.isfinite(sd) and sd >= 0),
        ("the margin must be a finite number >= 0", margin, np.isfinite(margin) and margin >= 0),
        ("the effect must be a finite ratio less 1, above -1", effect, np.isfinite(effect) and effect > -1),
        ("alpha must lie between 0 and 1", alpha, 0 < alpha < 1),
        ("power must lie between 0 and 1", power, 0 < power < 1),
        ("at least one axis was needed", axes, axes >= 1),
        ("at least one look was needed", looks, looks >= 1),
    )
    for need, got, holds in rules:
        if not holds:
            raise LabkitError(need, got=got)
    if goal not in claims:
        raise LabkitError("a known claim was needed", got=goal, options=claims)
