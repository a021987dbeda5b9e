"""Power: how many pairs a margin needs, given how much a pair of visits varies.

Knows the paired test and the Holm family; not how a pilot is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from labkit.bench.statistics import MIN_UNITS, TIE, signed_rank_cdf, signed_rank_critical
from labkit.core.errors import LabkitError

Claim = Literal["better", "worse", "equivalent"]
# Pitman efficiency of the signed-rank against the t test on normal differences (Hodges & Lehmann 1956).
SIGNED_RANK_EFFICIENCY = 3 / np.pi
PILOT_CONFIDENCE = 0.80
MAX_PAIRS = 1000


@dataclass(frozen=True, slots=True)
class PairPlan:
    """pairs: how many the claim needs, None where no number up to the largest will do. reason: why."""

    pairs: int | None
    reason: str


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


def pairs_needed(
    sd_log_ratio: float,
    margin: float,
    effect: float,
    goal: Claim,
    alpha: float = 0.05,
    axes: int = 1,
    power: float = 0.95,
) -> int | None:
    """The pairs of `plan_pairs`, None where no number of pairs can make the claim."""
    return plan_pairs(sd_log_ratio, margin, effect, goal, alpha, axes, power).pairs


def plan_pairs(
    sd_log_ratio: float,
    margin: float,
    effect: float,
    goal: Claim,
    alpha: float = 0.05,
    axes: int = 1,
    power: float = 0.95,
) -> PairPlan:
    """The fewest pairs, an even number of at least 8, with which the claim is found with `power`.

    sd_log_ratio: SD of one pair's log ratio. margin: ratio m, |log ratio| <= ln(1 + m). effect: the true
    improvement as a ratio less 1 (0.10: 10% better, -0.10: 10% worse, 0: a tie). axes: the size of the
    Holm family, whose hardest step alpha / axes the claim must pass. Pairs are even so that every ABBA is
    whole. Raises LabkitError for values outside their range.
    """
    _check(sd_log_ratio, margin, effect, goal, alpha, axes, power)
    shifts = _distances(margin, effect, goal)
    if min(shifts) <= TIE:
        return PairPlan(None, _never(margin, effect, goal))
    tail = alpha / axes / 2
    for pairs in range(MIN_UNITS, MAX_PAIRS + 1, 2):
        if _power(pairs, [s / max(sd_log_ratio, TIE) for s in shifts], tail) >= power:
            return PairPlan(pairs, _reason(pairs, tail))
    return PairPlan(None, f"more than {MAX_PAIRS} pairs: the noise is too large for this margin and effect")


def _distances(margin: float, effect: float, goal: Claim) -> tuple[float, ...]:
    """How far the true log ratio lies on the claim's side of the margin, or of both margins."""
    centre, limit = float(np.log1p(effect)), float(np.log1p(margin))
    sides = {"better": (centre - limit,), "worse": (-centre - limit,)}
    return sides.get(goal, (limit + centre, limit - centre))


def _power(pairs: int, distances: Sequence[float], tail: float) -> float:
    """Chance that every one-sided signed-rank test rejects; distances are in SDs of a pair.

    A noncentral t at the level that the discrete test really has with this many pairs, with the pairs
    scaled by the efficiency. Two sides fail almost never together, so their failures add up.
    """
    cut = signed_rank_critical(pairs, tail)
    if cut < 0:
        return 0.0
    reach = special.stdtrit(pairs - 1, 1 - signed_rank_cdf(pairs)[cut])
    misses = [_miss(pairs, reach, distance) for distance in distances]
    return 1 - sum(misses)


def _miss(pairs: int, reach: float, distance: float) -> float:
    """P(noncentral t <= reach). Beyond 15 past the reach it is 0 to double precision."""
    centre = distance * np.sqrt(pairs * SIGNED_RANK_EFFICIENCY)
    return 0.0 if centre > 3 * reach + 15 else float(special.nctdtr(pairs - 1, centre, reach))


def _never(margin: float, effect: float, goal: Claim) -> str:
    where = "on" if abs(min(_distances(margin, effect, goal))) <= TIE else "on the wrong side of"
    return f"never: an effect of {effect:+.2%} lies {where} the margin of {margin:.2%} for the claim {goal!r}"


def _reason(pairs: int, tail: float) -> str:
    reachable = next(n for n in range(1, MAX_PAIRS) if signed_rank_critical(n, tail) >= 0)
    if pairs > max(MIN_UNITS, reachable + reachable % 2):
        return "the noise and the distance from the margin set the number"
    if reachable > MIN_UNITS:
        return f"the smallest p of fewer than {reachable} pairs is above alpha after Holm"
    return f"{MIN_UNITS} pairs are the least that any verdict rests on"


def _check(sd: float, margin: float, effect: float, goal: str, alpha: float, axes: int, power: float) -> None:
    claims = ("better", "worse", "equivalent")
    rules = (
        ("the SD of the log ratio must be a finite number >= 0", sd, np.isfinite(sd) and sd >= 0),
        ("the margin must be a finite number >= 0", margin, np.isfinite(margin) and margin >= 0),
        ("the effect must be a finite ratio less 1, above -1", effect, np.isfinite(effect) and effect > -1),
        ("alpha must lie between 0 and 1", alpha, 0 < alpha < 1),
        ("power must lie between 0 and 1", power, 0 < power < 1),
        ("at least one axis was needed", axes, axes >= 1),
    )
    for need, got, holds in rules:
        if not holds:
            raise LabkitError(need, got=got)
    if goal not in claims:
        raise LabkitError("a known claim was needed", got=goal, options=claims)
