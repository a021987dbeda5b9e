"""Exact statistics of a paired bench: signed-rank intervals and tests, lag-1, Holm.

Knows numbers only: no metric, margin or verdict. Every function works along the last axis (the units),
so that leading axes may hold many runs at once; a single run is a one-dimensional array. Units may come in
stretches, such as those between the looks at a run, which are then ranked each on its own: what they add to
the signed-rank sum is independent of the others whatever the noise is, growing noise included.
"""

from __future__ import annotations

from collections.abc import Sequence
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
# Differences are log ratios of order 1: their rounding is about 1e-16, a real difference never below 1e-12.
TIE = 1e-12


@lru_cache(maxsize=512)
def signed_rank_cdf(*stretches: int) -> Array:
    """P(T <= t) for t = 0, 1, ..., T the signed-rank sum of symmetric differences in stretches of n units.

    Exact up to 200 units, by adding one rank at a time; above, the normal approximation with continuity
    correction. Source: Wilcoxon 1945; Hollander, Wolfe & Chicken, Nonparametric Statistical Methods, 3.1.
    """
    if sum(stretches) > EXACT_UNITS:
        total = sum(n * (n + 1) // 2 for n in stretches)
        spread = np.sqrt(sum(n * (n + 1) * (2 * n + 1) for n in stretches) / 24)
        return special.ndtr((np.arange(total + 1) + 0.5 - total / 2) / spread)
    mass = np.ones(1)
    for rank in (rank for n in stretches for rank in range(1, n + 1)):
        mass = (np.concatenate([mass, np.zeros(rank)]) + np.concatenate([np.zeros(rank), mass])) / 2
    return np.cumsum(mass)


def signed_rank_critical(stretches: Sequence[int], tail: float) -> int:
    """The largest t with P(T <= t) <= tail; -1 where so few units cannot reach that tail."""
    return int(np.searchsorted(signed_rank_cdf(*stretches), tail, side="right")) - 1


def attained_level(stretches: Sequence[int], tail: float) -> float:
    """The one-sided level that the exact test really has where at most `tail` is asked for."""
    cut = signed_rank_critical(stretches, tail)
    return float(signed_rank_cdf(*stretches)[cut]) if cut >= 0 else 0.0


def walsh_averages(x: ArrayLike, stretches: Sequence[int] = ()) -> Array:
    """`(..., n)` -> `(..., m)`: the means of all pairs of units, each unit with itself included.

    stretches: how many units follow one another in each, n in all; only units of one stretch are paired.
    Empty: one stretch, with m = n(n+1)/2.
    """
    values = np.asarray(x, dtype=np.float64)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise LabkitError("at least one unit was needed", got=f"an array of shape {values.shape}")
    first, second = _paired(tuple(stretches) or (values.shape[-1],))
    return (values[..., first] + values[..., second]) / 2


@lru_cache(maxsize=64)
def _paired(stretches: tuple[int, ...]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The places of all pairs of units of one stretch."""
    starts = np.cumsum([0, *stretches[:-1]])
    each = [np.array(np.triu_indices(n)) + start for start, n in zip(starts, stretches, strict=True)]
    first, second = np.concatenate(each, axis=1)
    return first, second


def hodges_lehmann(x: ArrayLike, stretches: Sequence[int] = ()) -> Any:
    """The median of the Walsh averages (Hodges & Lehmann 1963), shape `(...)`."""
    return np.median(walsh_averages(x, stretches), axis=-1)


def walsh_interval(x: ArrayLike, confidence: float = 0.95, stretches: Sequence[int] = ()) -> tuple[Any, Any]:
    """Low and high, each `(...)`, of the interval dual to the exact signed-rank test.

    Where n units cannot reach the confidence (n < 6 at 95%) it is the range of the averages, which in one
    stretch covers 1 - 2^(1-n) and no more. Source: Hollander, Wolfe & Chicken, 3.3 (Tukey's interval).
    """
    averages = np.sort(walsh_averages(x, stretches), axis=-1)
    cut = max(signed_rank_critical(stretches or np.shape(x)[-1:], (1 - confidence) / 2), 0)
    return averages[..., cut], averages[..., -1 - cut]


def signed_rank_p(
    x: ArrayLike, shift: float, alternative: Literal["greater", "less"], stretches: Sequence[int] = ()
) -> Any:
    """One-sided p, shape `(...)`, that the centre of x lies beyond `shift`.

    Exact by randomisation where a coin for each pair drew which arm went first, whatever the noise is.
    Dual to `walsh_interval`: its low is above shift exactly where this p is at most half of 1 - confidence.
    Conservative with ties: a Walsh average at the shift counts against the alternative.
    """
    beyond = walsh_averages(x, stretches) - shift
    beyond = beyond if alternative == "greater" else -beyond
    against = np.count_nonzero(beyond <= TIE, axis=-1)
    return signed_rank_cdf(*(stretches or np.shape(x)[-1:]))[against]


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
