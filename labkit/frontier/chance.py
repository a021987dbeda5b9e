"""Chance: how often noise alone, without any step, is cut into levels as well as a given series is.

Knows numbers in the order of time and the least-squares cost of cutting them; not which cuts are believed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MIN_SIDE = 2
MAX_CUTS = 4
# Each cut costs a level and a place, so twice log n and half as much again for the choice among places.
PENALTY = 3.0
SERIES, LONG_SERIES, LONG = 2000, 1000, 60
MAX_CORRELATION = 0.8
# Runs of one afternoon share the machine's state; this much goes unseen in a short series.
CORRELATED = 0.5
# Costs held at once: 16 MB.
AT_ONCE = 2_000_000
_TINY = 1e-300
# The same values summed in another order.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Chance:
    """p_value: of the series under noise alone. shuffled: whether its own values in other orders say so too.

    p_correlated: the same where neighbours are correlated by at least 0.5, whatever the series shows.
    """

    p_value: float
    p_correlated: float
    shuffled: bool


def partitions(y: Array) -> list[list[int]]:
    """The best cuts of a series `(n,)` into 1, 2, ... levels by least squares; each holds two values or more.

    Exact: dynamic programming over the place of the last cut.
    """
    n, most = len(y), _most(len(y))
    costs = _costs(y[None, :])
    best, choice = costs[0, :][:, 0].copy(), []
    for _ in range(most):
        best, chosen = _one_more(best[:, None], costs)
        best = best[:, 0]
        choice.append(chosen[:, 0])
    found: list[list[int]] = []
    for count in range(most + 1):
        cuts, stop = [], n
        for place in range(count - 1, -1, -1):
            stop = int(choice[place][stop])
            cuts.append(stop)
        found.append(cuts[::-1])
    return found


def gain(y: Array, cuts: Sequence[int], floor: float) -> float:
    """How much better the cuts describe the series than one level does, in log likelihood less the penalty.

    floor: the least variance of a value, known from the runs themselves.
    """
    parts = np.split(y, list(cuts))
    left = sum(float(((part - part.mean()) ** 2).sum()) for part in parts)
    whole = float(((y - y.mean()) ** 2).sum())
    return float(_gains(np.array([whole]), np.array([left]), len(y), len(cuts), floor)[0])


def chance(y: Array, cuts: Sequence[int], floor: float, alpha: float) -> Chance:
    """The p value of a series that was cut at the places where it is cut best.

    Noise of the same length, normal and with the lag-1 correlation that is left between the cuts, is cut best
    as well. Where that is rare, so are the values themselves in other orders, if there are enough that a p
    value of alpha could come of it; then the larger of the two counts. Seeded: a series has one p value.
    """
    observed = float(_statistics(y[None, :], floor)[0])
    residual = np.concatenate([part - part.mean() for part in np.split(y, list(cuts))])
    correlation = round(lag_one(residual, len(cuts)), 1)
    normal, correlated = (
        _share(_normal_noise(len(y), r), observed) for r in (correlation, max(CORRELATED, correlation))
    )
    if normal > alpha or _least_p(len(y), cuts) > alpha:
        return Chance(normal, max(normal, correlated), False)
    shuffled = _share(_statistics(_shuffled(y), floor), observed - _ROUNDING * abs(observed))
    return Chance(max(normal, shuffled), max(normal, shuffled, correlated), True)


def lag_one(residual: Array, cuts: int) -> float:
    """Lag-1 correlation of residuals `(n,)` about their levels, between 0 and 0.8.

    Corrected for what taking the levels out takes away: about (1 + 3r) / n for one level (Kendall 1954), and,
    as simulated, three times as much for each cut that was put where it fits best.
    """
    total = float(residual @ residual)
    n = len(residual)
    if total <= _TINY or n < 2 * MIN_SIDE + 1:
        return 0.0
    raw = float(residual[1:] @ residual[:-1]) / total
    return min(MAX_CORRELATION, max(0.0, raw + (1 + 3 * cuts) * (1 + 3 * raw) / n))


def _most(n: int) -> int:
    return max(0, min(MAX_CUTS, n // MIN_SIDE - 1))


def _least_p(n: int, cuts: Sequence[int]) -> float:
    """The p value of the clearest step at these places: how many orders of the values show it as clearly."""
    ends = [0, *cuts, n]
    sizes = [b - a for a, b in pairwise(ends)]
    orders = math.factorial(n)
    for size in sizes:
        orders //= math.factorial(size)
    return max(2 / orders, 1 / SERIES)


def _share(noise: Array, observed: float) -> float:
    """The series itself counts as one of the noise's, so that the p value is never 0."""
    return (1 + int(np.count_nonzero(noise >= observed))) / (1 + len(noise))


def _sample(n: int) -> int:
    return SERIES if n <= LONG else LONG_SERIES


def _shuffled(y: Array) -> Array:
    generator = np.random.default_rng(len(y))
    return generator.permuted(np.tile(y, (_sample(len(y)), 1)), axis=1)


@lru_cache(maxsize=256)
def _normal_noise(n: int, correlation: float) -> Array:
    """`(series,)`: how well series of n normal values with a lag-1 correlation are cut by chance."""
    generator = np.random.default_rng(n)
    fresh = generator.standard_normal((_sample(n), n))
    values = fresh.copy()
    for place in range(1, n):
        values[:, place] = (
            correlation * values[:, place - 1] + math.sqrt(1 - correlation**2) * fresh[:, place]
        )
    return _statistics(values, 0.0)


def _statistics(series: Array, floor: float) -> Array:
    """`(m, n)` series -> `(m,)`: the gain of the best cuts, over every number of them."""
    at_once = max(1, AT_ONCE // series.shape[1] ** 2)
    blocks = range(0, len(series), at_once)
    return np.concatenate([_best_gains(series[start : start + at_once], floor) for start in blocks])


def _best_gains(series: Array, floor: float) -> Array:
    n, costs = series.shape[1], _costs(series)
    best = costs[0].copy()
    whole, found = costs[0, n], np.full(len(series), -np.inf)
    for count in range(1, _most(n) + 1):
        best = (best[:, None, :] + costs).min(axis=0)
        found = np.maximum(found, _gains(whole, best[n], n, count, floor))
    return found


def _costs(series: Array) -> Array:
    """`(m, n)` -> `(n + 1, n + 1, m)`: the squares about the mean of values start .. stop - 1."""
    m, n = series.shape
    centred = series - series.mean(axis=1, keepdims=True)
    sums, squares = (
        np.concatenate([np.zeros((1, m)), np.cumsum(part.T, axis=0)]) for part in (centred, centred**2)
    )
    costs = np.full((n + 1, n + 1, m), np.inf)
    for start in range(n - MIN_SIDE + 1):
        stops = np.arange(start + MIN_SIDE, n + 1)
        length = (stops - start)[:, None]
        total = sums[stops] - sums[start]
        costs[start, stops] = np.maximum(squares[stops] - squares[start] - total**2 / length, 0.0)
    return costs


def _one_more(best: Array, costs: Array) -> tuple[Array, NDArray[np.intp]]:
    """From the least costs up to each place with k cuts to those with k + 1, and where the last cut is."""
    joined = best[:, None, :] + costs
    chosen = joined.argmin(axis=0)
    return np.take_along_axis(joined, chosen[None], axis=0)[0], chosen


def _gains(whole: Array, left: Array, n: int, cuts: int, floor: float) -> Array:
    """Log likelihood gained, n log(whole / left), less the penalty; the noise is the floor at least."""
    noise = np.maximum(left, floor * (n - cuts - 1))
    ratio = (whole - left + noise + _TINY) / (noise + _TINY)
    return n * np.log(ratio) - PENALTY * cuts * math.log(n)
