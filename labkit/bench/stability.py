"""Stability: whether the samples of a run drifted, or hung together from pair to pair.

Knows the values of one metric on both arms; not what a verdict makes of them. The verdicts stay exact under
either, since a coin drew the order within each pair: what is found here is told, and decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from labkit.bench.statistics import TIE, Array, holm, lag1
from labkit.core.errors import LabkitError

ALPHA = 0.01
EXACT_UNITS = 60
SHUFFLES = 4999


@dataclass(frozen=True, slots=True)
class Stability:
    """How steady a metric was over the pairs of a run, in their order. ratio: taken in logs.

    level_drift: change of the mean of the two arms from the first pair to the last (Theil 1950; Sen 1968),
    as a ratio less 1, or in the metric's unit. effect_drift: the same of candidate over baseline, or of
    their difference. level_lag1, effect_lag1: autocorrelation of neighbouring pairs. The p values belong to
    each on its own: Kendall's tau of a drift, a test of shuffled orders of an autocorrelation.
    """

    pairs: int
    ratio: bool
    level_drift: float
    level_drift_p: float
    effect_drift: float
    effect_drift_p: float
    level_lag1: float
    level_lag1_p: float
    effect_lag1: float
    effect_lag1_p: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def phrases(self, title: str, unit: str = "") -> tuple[str, ...]:
        """What is significant at 1% after Holm over the four tests, with that p; empty where nothing is.

        title: of the metric. unit: the metric's, which changes are in where they are no ratios.
        """
        ps = (self.level_drift_p, self.effect_drift_p, self.level_lag1_p, self.effect_lag1_p)
        found = zip(self._texts(title, unit), holm(ps), strict=True)
        return tuple(f"{text} ({detail}p {_small(p)})" for (text, detail), p in found if p < ALPHA)

    def _texts(self, title: str, unit: str) -> Iterator[tuple[str, str]]:
        level, effect = (
            f"{drift:+.1%}" if self.ratio else f"{drift:+.2g} {unit}".rstrip()
            for drift in (self.level_drift, self.effect_drift)
        )
        between = f"the difference in {title} between the arms"
        yield f"{title} drifted by {level} over the run", ""
        yield f"{between} drifted by {effect} over the run", ""
        yield f"{title} hangs together from pair to pair", f"lag-1 {self.level_lag1:+.2f}, "
        yield f"{between} hangs together from pair to pair", f"lag-1 {self.effect_lag1:+.2f}, "


def stability(baseline: Sequence[float], candidate: Sequence[float], ratio: bool = True) -> Stability:
    """How steady a run was, from the values of its good pairs in order; fewer than 3 pairs show nothing.

    ratio: whether the metric is compared by ratios. Where a value is not positive, differences are taken.
    Raises LabkitError for arms of different length and for values that are not finite.
    """
    a, b = (np.asarray(values, dtype=np.float64) for values in (baseline, candidate))
    if a.shape != b.shape or a.ndim != 1 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        need = "as many finite values on the baseline as on the candidate were needed"
        raise LabkitError(need, got=f"{a.tolist()} and {b.tolist()}")
    ratio = ratio and bool(np.all(a > 0) and np.all(b > 0))
    if ratio:
        a, b = np.log(a), np.log(b)
    level, effect = (a + b) / 2, b - a
    changes = [math.expm1(total_change(x)) if ratio else total_change(x) for x in (level, effect)]
    return Stability(
        pairs=len(a),
        ratio=ratio,
        level_drift=changes[0],
        level_drift_p=kendall_p(level),
        effect_drift=changes[1],
        effect_drift_p=kendall_p(effect),
        level_lag1=_lag1(level),
        level_lag1_p=lag1_p(level),
        effect_lag1=_lag1(effect),
        effect_lag1_p=lag1_p(effect),
    )


def total_change(x: Array) -> float:
    """The median of all slopes between two of the values `(n,)`, times n - 1; 0 for fewer than two."""
    first, second = np.triu_indices(len(x), 1)
    return float(np.median((x[second] - x[first]) / (second - first)) * (len(x) - 1)) if len(x) > 1 else 0.0


def kendall_p(x: Array) -> float:
    """Two-sided p that the values `(n,)` have no monotone trend, by Kendall's tau (1938; Mann 1945).

    Exact up to 60 values without ties; otherwise normal, with the variance corrected for ties.
    """
    n = len(x)
    first, second = np.triu_indices(n, 1)
    steps = x[second] - x[first]
    score = int(np.count_nonzero(steps > TIE) - np.count_nonzero(steps < -TIE))
    ties = [int(count) for count in _groups(x)]
    if n < 3 or max(ties) == n:
        return 1.0
    if n <= EXACT_UNITS and max(ties) == 1:
        inversions = (len(steps) - abs(score)) // 2
        return min(1.0, 2 * float(inversion_cdf(n)[inversions]))
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    return min(1.0, 2 * float(special.ndtr(-max(abs(score) - 1, 0) / math.sqrt(variance))))


@lru_cache(maxsize=128)
def inversion_cdf(n: int) -> Array:
    """P(inversions <= k) of a random order of n values, k = 0 .. n(n-1)/2, by adding one value at a time."""
    mass = np.ones(1)
    for values in range(2, n + 1):
        mass = np.convolve(mass, np.full(values, 1 / values))
    return np.cumsum(mass)


def lag1_p(x: Array) -> float:
    """Two-sided p that the order of the values `(n,)` does not matter, by their lag-1 autocorrelation.

    A seeded sample of 4,999 orders, the observed one counted in, so that it is valid for any noise. The
    mean over all orders is -1/n (Moran 1948), from which distances are taken.
    """
    n = len(x)
    if n < 3 or np.ptp(x) <= TIE:
        return 1.0
    orders = np.random.default_rng(0).permuted(np.tile(x, (SHUFFLES, 1)), axis=1)
    away = np.abs(np.array([_lag1(x), *lag1(orders)]) + 1 / n)
    return float(np.mean(away >= away[0] - TIE))


def _lag1(x: Array) -> float:
    return float(lag1(x)) if len(x) > 1 else 0.0


def _groups(x: Array) -> Array:
    """How many values are equal, to rounding, of each that there is; one 0 for no values."""
    breaks = np.flatnonzero(np.diff(np.sort(x)) > TIE)
    edges = np.concatenate([[-1], breaks, [len(x) - 1]])
    return np.diff(edges)


def _small(p: float) -> str:
    return f"{p:.2g}" if p >= ALPHA / 10 else "< 0.001"
