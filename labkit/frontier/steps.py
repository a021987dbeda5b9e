"""Steps: where the level of a series of results changed, and whether noise alone could look like that.

Knows numbers in the order of time; not what was measured, nor what else changed. Source: optimal partitioning
by dynamic programming (Jackson et al. 2005) under a penalty of Schwarz's kind (Yao 1988).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from labkit.core.errors import LabkitError
from labkit.frontier.chance import MIN_SIDE, chance, gain, lag_one, partitions

Array = NDArray[np.float64]
Test = Literal["exact", "permutation", "normal"]

ALPHA = 0.05
MAX_RECORDS = 200
# Log ratios and shares are of order 1: what differs by less is rounding.
TIE = 1e-12


@dataclass(frozen=True, slots=True)
class Segment:
    """Results start .. stop - 1 of a series, about one level. low, high: its 95% interval."""

    start: int
    stop: int
    level: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Step:
    """A change of level before the result at `at`. size: how much higher the level is from there on.

    low, high: 95% interval of the size. p_value: the chance of such a step anywhere in a series of this
    length that has none. p_correlated: the same where each result is like the one before it (lag-1 0.5, or
    what the series shows if that is more), as of a machine that drifts; weak where that is above alpha.
    test: `exact` where no result varies within its level, so that there is no chance in it; `permutation`
    where the results themselves, shuffled, bear it out; `normal` where there are too few to shuffle, so that
    the noise had to be taken for normal.
    """

    at: int
    size: float
    low: float
    high: float
    p_value: float
    p_correlated: float
    test: Test
    weak: bool


@dataclass(frozen=True, slots=True)
class Steps:
    """A series cut into levels. spread: SD of a result about its level. correlation: lag-1, of the noise.

    outside: whether the last result lies beyond what those before it on its level let expect; it is no step
    until another does.
    """

    segments: tuple[Segment, ...]
    steps: tuple[Step, ...]
    spread: float
    correlation: float
    outside: bool


@dataclass(frozen=True, slots=True)
class _Tested:
    p_value: float
    p_correlated: float
    test: Test


def find_steps(values: ArrayLike, errors: ArrayLike | None = None, alpha: float = ALPHA) -> Steps:
    """The levels of a series `(n,)`, in the order of time, and the steps between them.

    values: log values, or plain ones where differences count. errors: the standard error of each by its own
    run, 0 where it is exact; the noise is never taken for less than these, and where results differ more from
    run to run, that counts. alpha: the chance of any false step in a series without one, over every place
    where it could be. A level holds at least two results. Raises LabkitError for values that are not finite,
    none at all, or more than 200.
    """
    y = np.asarray(values, dtype=np.float64)
    own = np.zeros_like(y) if errors is None else np.asarray(errors, dtype=np.float64)
    _check(y, own)
    floor = float(np.mean(own**2))
    cuts, tested = _borne_out(y, floor, alpha)
    return _described(y, cuts, floor, tested, alpha)


def _check(y: Array, own: Array) -> None:
    if y.ndim != 1 or y.shape != own.shape or not 1 <= len(y) <= MAX_RECORDS:
        need = f"a series of 1 to {MAX_RECORDS} values, with an error of each, was needed"
        raise LabkitError(need, got=f"shapes {y.shape} and {own.shape}")
    if not (np.isfinite(y).all() and np.isfinite(own).all() and (own >= 0).all()):
        raise LabkitError("finite values with errors of at least 0 were needed for steps")


def _borne_out(y: Array, floor: float, alpha: float) -> tuple[list[int], list[_Tested]]:
    """The best cuts of which each is more than chance, with its p value and test.

    The series as a whole comes first, so that a false step anywhere has a chance of at most alpha; then each
    cut within the two levels that it parts, where the p value pays for the share of the series that they are.
    """
    fits = partitions(y)
    count = int(np.argmax([gain(y, cuts, floor) for cuts in fits]))
    if count == 0:
        return [], []
    whole = _tested(y, fits[count], floor, alpha)
    if whole.p_value > alpha:
        return [], []
    while count > 0:
        cuts = fits[count]
        tests = [_of_cut(y, cuts, place, floor, alpha, whole) for place in range(count)]
        if max(tested.p_value for tested in tests) <= alpha:
            return cuts, tests
        count -= 1
    return [], []


def _of_cut(y: Array, cuts: list[int], place: int, floor: float, alpha: float, whole: _Tested) -> _Tested:
    ends = [0, *cuts, len(y)]
    start, cut, stop = ends[place : place + 3]
    looks = len(y) / (stop - start)
    found = _tested(y[start:stop], [cut - start], floor, alpha / looks)
    return _Tested(
        min(1.0, max(whole.p_value, looks * found.p_value)),
        min(1.0, max(whole.p_correlated, looks * found.p_correlated)),
        found.test,
    )


def _tested(y: Array, cuts: list[int], floor: float, alpha: float) -> _Tested:
    residual = y - _levels(y, cuts)
    if floor == 0 and np.ptp(residual) <= TIE:
        return _Tested(0.0, 0.0, "exact")
    found = chance(y, cuts, floor, alpha)
    return _Tested(found.p_value, found.p_correlated, "permutation" if found.shuffled else "normal")


def _levels(y: Array, cuts: Sequence[int]) -> Array:
    parts = np.split(y, list(cuts))
    return np.concatenate([np.full(len(part), part.mean()) for part in parts])


def _described(y: Array, cuts: list[int], floor: float, tested: list[_Tested], alpha: float) -> Steps:
    residual = y - _levels(y, cuts)
    freedom = max(1, len(y) - len(cuts) - 1)
    variance = max(float(residual @ residual) / freedom, floor)
    correlation = lag_one(residual, len(cuts))
    # The mean of m results of lag-1 correlation r varies (1 + r) / (1 - r) times as much as of free ones.
    wide = variance * (1 + correlation) / (1 - correlation)
    reach = float(special.stdtrit(freedom, 0.975))
    segments = _segments(y, cuts, wide, reach)
    steps = tuple(
        _step(a, b, (wide, reach), each, alpha)
        for a, b, each in zip(segments, segments[1:], tested, strict=False)
    )
    return Steps(segments, steps, float(np.sqrt(variance)), correlation, _outside(y, segments[-1], floor))


def _segments(y: Array, cuts: list[int], variance: float, reach: float) -> tuple[Segment, ...]:
    ends = [0, *cuts, len(y)]
    found = []
    for start, stop in pairwise(ends):
        level, half = float(y[start:stop].mean()), reach * float(np.sqrt(variance / (stop - start)))
        found.append(Segment(start, stop, level, level - half, level + half))
    return tuple(found)


def _step(a: Segment, b: Segment, noise: tuple[float, float], tested: _Tested, alpha: float) -> Step:
    """noise: the variance of a result, and how many standard errors a 95% interval reaches."""
    (variance, reach), size = noise, b.level - a.level
    half = reach * float(np.sqrt(variance / (a.stop - a.start) + variance / (b.stop - b.start)))
    chances = (tested.p_value, tested.p_correlated, tested.test)
    return Step(b.start, size, size - half, size + half, *chances, weak=tested.p_correlated > alpha)


def _outside(y: Array, last: Segment, floor: float) -> bool:
    """Whether the last result lies outside the 95% prediction interval of those before it on its level."""
    before, newest = y[last.start : last.stop - 1], y[last.stop - 1]
    m = len(before)
    if m < MIN_SIDE:
        return False
    variance = max(float(before.var(ddof=1)), floor)
    reach = float(special.stdtrit(m - 1, 0.975)) * float(np.sqrt(variance * (1 + 1 / m)))
    return abs(float(newest - before.mean())) > reach + TIE
