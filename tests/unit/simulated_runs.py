"""Runs of a paired bench whose noise is made up, visit by visit, many at once.

Noise belongs to the place of a visit in the run, whichever arm it is made on. Log times have an SD of 3%
but for what a kind adds to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from labkit.bench.judges import classify
from labkit.bench.pairs import visit_order
from labkit.bench.sequential import Look
from labkit.bench.statistics import Array, walsh_interval

SD = 0.03
MARGIN = 0.03
LIMIT = math.log1p(MARGIN)
RUNS = 20_000
Draw = Callable[[np.random.Generator, tuple[int, int]], Array]


def independent(source: np.random.Generator, shape: tuple[int, int]) -> Array:
    return SD * source.standard_normal(shape)


def correlated(rho: float) -> Draw:
    """First-order autoregressive with that correlation of neighbouring visits."""

    def draw(source: np.random.Generator, shape: tuple[int, int]) -> Array:
        noise = independent(source, shape)
        for visit in range(1, shape[1]):
            noise[:, visit] = rho * noise[:, visit - 1] + math.sqrt(1 - rho**2) * noise[:, visit]
        return noise

    return draw


def drifting(slope: float, sd: float = SD) -> Draw:
    """Slower by `slope` with each visit, beside independent noise."""

    def draw(source: np.random.Generator, shape: tuple[int, int]) -> Array:
        return independent(source, shape) * (sd / SD) + slope * np.arange(shape[1])

    return draw


def outlying(source: np.random.Generator, shape: tuple[int, int]) -> Array:
    """One visit in twenty takes 1.5 to 3 times as long."""
    longer = np.log(source.uniform(1.5, 3.0, shape))
    return independent(source, shape) + np.where(source.random(shape) < 0.05, longer, 0.0)


def bimodal(source: np.random.Generator, shape: tuple[int, int]) -> Array:
    """A clock with two speeds, 10% apart, that changes before one visit in four."""
    flips = source.random(shape) < 0.25
    flips[:, 0] = source.random(shape[0]) < 0.5
    return independent(source, shape) / 3 + 0.1 * (np.cumsum(flips, axis=1) % 2)


NOISES: Mapping[str, Draw] = {
    "independent": independent,
    "AR(.5)": correlated(0.5),
    "AR(.9)": correlated(0.9),
    # 5 per mille a visit: 27% slower after 48 visits, as a laptop that warms up.
    "drift": drifting(0.005),
    # Every visit is 4% slower than the one before, forty times the noise.
    "strong drift": drifting(0.04, sd=0.001),
    "5% outliers": outlying,
    "bimodal": bimodal,
}


@lru_cache(maxsize=2)
def coins(pairs: int, runs: int = RUNS) -> Array:
    """`(runs, pairs)`: 1 where the baseline goes first and -1 elsewhere, as the bench draws it by seed."""
    orders = (visit_order(pairs, f"run {run}") for run in range(runs))
    return np.array([[1.0 if first == "baseline" else -1.0 for first, _ in order] for order in orders])


def first_less_second(noise: str, pairs: int, runs: int = RUNS, seed: int = 0) -> Array:
    """`(runs, pairs)`: log time of the first visit of each pair less that of the second."""
    times = NOISES[noise](np.random.default_rng([seed, pairs]), (runs, 2 * pairs))
    return times[:, 0::2] - times[:, 1::2]


def aabb(noise: str, pairs: int, runs: int = RUNS, seed: int = 0) -> Array:
    """`(runs, pairs)` differences of two equal arms in the order AABB: two visits apart, always one way."""
    times = NOISES[noise](np.random.default_rng([seed, pairs]), (runs, 2 * pairs))
    halves = times.reshape(runs, pairs // 2, 2, 2)
    return (halves[:, :, 0] - halves[:, :, 1]).reshape(runs, pairs)


@lru_cache(maxsize=2)
def ties(noise: str, pairs: int, runs: int = RUNS) -> Array:
    """`(runs, pairs)` log ratios of baseline to candidate time where both arms are equally fast."""
    return first_less_second(noise, pairs, runs) * coins(pairs, runs)


@lru_cache(maxsize=64)
def tie_intervals(noise: str, planned: tuple[int, ...], runs: int = RUNS) -> tuple[Array, Array]:
    """The `intervals` of two equal arms."""
    return intervals(ties(noise, planned[-1], runs), planned)


def intervals(d: Array, planned: Sequence[int]) -> tuple[Array, Array]:
    """Low and high `(looks, runs)` of the intervals at each look, at its own level; d: `(runs, pairs)`."""
    found = [_interval(d[:, :pairs], Look(tuple(planned), index)) for index, pairs in enumerate(planned)]
    return np.array([low for low, _ in found]), np.array([high for _, high in found])


def _interval(d: Array, look: Look) -> tuple[Array, Array]:
    """In parts, so that the Walsh averages of all runs need not be held at once."""
    stretches = look.stretches(d.shape[1])
    parts = [walsh_interval(p, 1 - look.alpha, stretches) for p in np.array_split(d, 1 + len(d) // 2000)]
    return np.concatenate([low for low, _ in parts]), np.concatenate([high for _, high in parts])


def verdicts(low: Array, high: Array, effect: float = 0.0, margin: float = MARGIN) -> Array:
    """`(looks, runs)` of str: what is said of an effect in log ratios at each look, by intervals of a tie."""
    return classify(low + effect, high + effect, math.log1p(margin))


def ended(said: Array, planned: Sequence[int]) -> tuple[Array, Array]:
    """The verdict of each run and the pairs it took, `(runs,)`: at the first look with one, or the last."""
    settled = said != "unresolved"
    at = np.where(settled.any(axis=0), settled.argmax(axis=0), len(said) - 1)
    return said[at, np.arange(said.shape[1])], np.asarray(planned)[at]


def standard_error(share: float, runs: int = RUNS) -> float:
    """Of the Monte Carlo, for a share of runs."""
    return math.sqrt(share * (1 - share) / runs)
