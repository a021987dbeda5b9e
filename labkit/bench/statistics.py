"""Exact statistics of a paired bench: signed-rank intervals and tests, autocorrelation, Holm.

Knows numbers only: no metric, margin or verdict. Every function works along the last axis (the units),
so that leading axes may hold many runs at once; a single run is a one-dimensional array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from labkit.core.errors import LabkitError
from labkit.core.records import Estimate

Array = NDArray[np.float64]

MIN_UNITS = 8
EXACT_UNITS = 200
EXACT_FLIPS = 16
MONTE_CARLO_FLIPS = 20_000
# Two-sided 20%: a needless quad costs a little power, a missed autocorrelation costs coverage.
CORRELATED_Z = 1.2816
# Differences are log ratios of order 1: their rounding is about 1e-16, a real difference never below 1e-12.
TIE = 1e-12


@dataclass(frozen=True, slots=True)
class PairedInterval:
    """Hodges-Lehmann estimate with its interval; each field has the shape of the leading axes.

    correlated: the pairs are autocorrelated. in_quads: the interval is over quads for that reason.
    """

    estimate: Any
    low: Any
    high: Any
    correlated: Any
    in_quads: Any


@lru_cache(maxsize=512)
def signed_rank_cdf(n: int) -> Array:
    """P(T <= t) for t = 0 .. n(n+1)/2, T the signed-rank sum of n symmetric differences.

    Exact up to 200 units, by adding one rank at a time; above, the normal approximation with continuity
    correction. Source: Wilcoxon 1945; Hollander, Wolfe & Chicken, Nonparametric Statistical Methods, 3.1.
    """
    total = n * (n + 1) // 2
    if n > EXACT_UNITS:
        spread = np.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return special.ndtr((np.arange(total + 1) + 0.5 - total / 2) / spread)
    mass = np.zeros(total + 1)
    mass[0] = 1.0
    for rank in range(1, n + 1):
        mass = (mass + np.concatenate([np.zeros(rank), mass[:-rank]])) / 2
    return np.cumsum(mass)


def signed_rank_critical(n: int, tail: float) -> int:
    """The largest t with P(T <= t) <= tail; -1 where n units cannot reach that tail."""
    return int(np.searchsorted(signed_rank_cdf(n), tail, side="right")) - 1


def walsh_averages(x: ArrayLike) -> Array:
    """`(..., n)` -> `(..., n(n+1)/2)`: the means of all pairs of units, each unit with itself included."""
    values = np.asarray(x, dtype=np.float64)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise LabkitError("at least one unit was needed", got=f"an array of shape {values.shape}")
    first, second = np.triu_indices(values.shape[-1])
    return (values[..., first] + values[..., second]) / 2


def hodges_lehmann(x: ArrayLike) -> Any:
    """The median of the Walsh averages (Hodges & Lehmann 1963), shape `(...)`."""
    return np.median(walsh_averages(x), axis=-1)


def walsh_interval(x: ArrayLike, confidence: float = 0.95) -> tuple[Any, Any]:
    """Low and high, each `(...)`, of the interval dual to the exact signed-rank test.

    Where n units cannot reach the confidence (n < 6 at 95%) it is the range of the sample, which covers
    1 - 2^(1-n) and no more. Source: Hollander, Wolfe & Chicken, 3.3 (Tukey's interval).
    """
    averages = np.sort(walsh_averages(x), axis=-1)
    n = np.shape(x)[-1]
    cut = max(signed_rank_critical(n, (1 - confidence) / 2), 0)
    return averages[..., cut], averages[..., -1 - cut]


def signed_rank_p(x: ArrayLike, shift: float, alternative: Literal["greater", "less"]) -> Any:
    """One-sided p, shape `(...)`, that the centre of x lies beyond `shift`.

    Dual to `walsh_interval`: its low is above shift exactly where this p is at most half of 1 - confidence.
    Conservative with ties: a Walsh average at the shift counts against the alternative.
    """
    beyond = walsh_averages(x) - shift
    beyond = beyond if alternative == "greater" else -beyond
    against = np.count_nonzero(beyond <= TIE, axis=-1)
    return signed_rank_cdf(np.shape(x)[-1])[against]


def sign_flip_p(x: ArrayLike, seed: int = 0) -> float:
    """Two-sided randomisation p of the mean of one run, all 2^n sign patterns up to n = 16, seeded above.

    The Monte-Carlo p counts the observed pattern itself, so it is never 0 and stays valid.
    """
    values = np.asarray(x, dtype=np.float64)
    n = len(values)
    observed = abs(values.sum()) - TIE
    if n <= EXACT_FLIPS:
        patterns = np.arange(2**n)[:, None] >> np.arange(n) & 1
        return float(np.mean(np.abs((1 - 2 * patterns) @ values) >= observed))
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(MONTE_CARLO_FLIPS, n))
    hits = int(np.count_nonzero(np.abs(signs @ values) >= observed))
    return (hits + 1) / (MONTE_CARLO_FLIPS + 1)


def lag1(x: ArrayLike) -> Any:
    """Lag-1 autocorrelation of the residuals from the mean, `(...)`; 0 where they are all equal."""
    values = np.asarray(x, dtype=np.float64)
    residual = values - values.mean(axis=-1, keepdims=True)
    scale = np.sum(residual**2, axis=-1)
    lagged = np.sum(residual[..., 1:] * residual[..., :-1], axis=-1)
    return np.where(scale > TIE**2, lagged / np.where(scale > TIE**2, scale, 1.0), 0.0)


def autocorrelated(x: ArrayLike) -> Any:
    """Whether lag-1 departs from its null mean -1/n at the two-sided 20% level, `(...)` of bool.

    Negative counts too: a drift makes ABBA pairs alternate. Mean and variance: Moran 1948.
    """
    n = np.shape(x)[-1]
    if n < 3:
        return np.zeros(np.shape(x)[:-1], dtype=bool)
    spread = (n - 2) / (n * np.sqrt(n - 1))
    moving = np.ptp(np.asarray(x, dtype=np.float64), axis=-1) > TIE
    return moving & (np.abs(lag1(x) + 1 / n) > CORRELATED_Z * spread)


def quads(x: ArrayLike, positions: Sequence[int] | None = None) -> Array:
    """`(..., n)` pairs -> `(..., m)` quads: the mean of pairs 2q and 2q + 1, the two halves of one ABBA.

    positions: the place of each pair in the run, where some are missing; a half quad is left out.
    A quad is free of linear drift, and nearly so of the correlation between neighbouring visits.
    """
    values = np.asarray(x, dtype=np.float64)
    place = {p: i for i, p in enumerate(range(values.shape[-1]) if positions is None else positions)}
    whole = [(i, place[p + 1]) for p, i in sorted(place.items()) if p % 2 == 0 and p + 1 in place]
    first, second = [a for a, _ in whole], [b for _, b in whole]
    return (values[..., first] + values[..., second]) / 2


def paired_interval(
    d: ArrayLike, positions: Sequence[int] | None = None, confidence: float = 0.95
) -> PairedInterval:
    """The bench's interval for paired differences d `(..., n)`, in run order.

    The unit is the pair; where pairs are autocorrelated and at least 8 quads are left, it is the quad.
    """
    correlated = autocorrelated(d)
    estimate, (low, high) = hodges_lehmann(d), walsh_interval(d, confidence)
    by_quad = quads(d, positions)
    if by_quad.shape[-1] < MIN_UNITS:
        return PairedInterval(estimate, low, high, correlated, np.zeros_like(correlated))
    quad_low, quad_high = walsh_interval(by_quad, confidence)
    return PairedInterval(
        np.where(correlated, hodges_lehmann(by_quad), estimate),
        np.where(correlated, quad_low, low),
        np.where(correlated, quad_high, high),
        correlated,
        correlated,
    )


def mean_interval(x: ArrayLike, confidence: float = 0.95) -> tuple[Any, Any, Any]:
    """Mean, low and high, each `(...)`, by Student's t; one unit claims no interval (all three are equal)."""
    values = np.asarray(x, dtype=np.float64)
    mean, n = values.mean(axis=-1), values.shape[-1]
    if n < 2:
        return mean, mean, mean
    reach = special.stdtrit(n - 1, (1 + confidence) / 2) * values.std(axis=-1, ddof=1) / np.sqrt(n)
    return mean, mean - reach, mean + reach


def mean_p(x: ArrayLike, shift: float, alternative: Literal["greater", "less"]) -> float:
    """One-sided t-test p of one run that the mean lies beyond `shift`; dual to `mean_interval`.

    Without any spread it is the test's limit, 0 or 1; a mean at the shift is not beyond it.
    """
    values = np.asarray(x, dtype=np.float64)
    n, beyond = len(values), values.mean() - shift
    beyond = beyond if alternative == "greater" else -beyond
    error = values.std(ddof=1) / np.sqrt(n) if n > 1 else np.inf
    if error <= TIE:
        return 0.0 if beyond > TIE else 1.0
    return 1.0 if n < 2 else float(special.stdtr(n - 1, -beyond / error))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's (1979) step-down adjusted p values, in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, floor = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        floor = max(floor, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = floor
    return tuple(adjusted)


def single_sample_interval(values: ArrayLike, unit: str) -> Estimate:
    """One arm on its own: Hodges-Lehmann value and Walsh interval over its visits, in `unit`.

    Below 6 visits low and high are the sample's range, which covers less than 95%; one visit claims no
    interval at all (low == high == value, n == 1).
    """
    low, high = walsh_interval(values)
    return Estimate(float(hodges_lehmann(values)), float(low), float(high), int(np.size(values)), unit)
