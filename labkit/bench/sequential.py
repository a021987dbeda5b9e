"""Group-sequential looks: after how many pairs a run is looked at, and the level that each look may use.

Knows numbers of pairs and levels; no samples and no verdicts. All levels are one-sided inside, since a run
ends with at most one of `better` and `worse`, and two-sided where a function says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from scipy import special

from labkit.bench.statistics import MIN_UNITS, Array
from labkit.core.errors import LabkitError

# Two-sided, over all looks of a run and all axes of an experiment.
ALPHA = 0.05
# Beyond 9 SDs a normal density has less mass than the rounding of what is added up.
REACH = 9.0
MAX_NODES = 1024
# A root to 13 digits: halving the reach takes 48 steps.
PRECISION, STEPS = 1e-13, 64
Region = tuple[float, float]


def _check_planned(planned: Sequence[int], index: int) -> None:
    rises = all(a < b for a, b in pairwise(planned))
    if not planned or planned[0] < 1 or not rises or not 0 <= index < len(planned):
        need = "looks at rising numbers of pairs were needed, and one of them"
        raise LabkitError(need, got=f"look {index} of {list(planned)}, counted from 0")


@dataclass(frozen=True, slots=True)
class Look:
    """One of the looks of a run. planned: the good pairs at each, ascending. index: which it is, from 0.

    Where some pairs failed a look has fewer than planned; its level is that of the plan. left_out: the place
    of a pair, from 0, that was there at the look and is not judged, None for no such pair. Raises
    LabkitError for looks that are none.
    """

    planned: tuple[int, ...]
    index: int = 0
    left_out: int | None = None

    def __post_init__(self) -> None:
        _check_planned(self.planned, self.index)

    @property
    def alpha(self) -> float:
        """The two-sided nominal level of this look, of 0.05 over all looks."""
        return look_alpha(self.planned, self.index)

    @property
    def spent(self) -> float:
        """The part of 0.05, two-sided, that this look and those before it use together."""
        return ALPHA * _spending(self.planned[self.index] / self.planned[-1])

    def stretches(self, pairs: int) -> tuple[int, ...]:
        """How many of so many judged pairs lie between the looks up to this one; they are ranked apart.

        What a stretch adds is then independent of the others under any noise, as the levels suppose. Ranked
        together, pairs of a noise that grows during the run would outweigh those of the looks before, and the
        looks err more often than planned (up to 3.0% for 2.5%, with four looks and noise that grows).
        """
        out = self.left_out
        there = pairs if out is None else pairs + 1
        edges = [0, *(count for count in self.planned[: self.index] if count < there), there]
        if out is not None:
            edges = [edge - (edge > out) for edge in edges]
        return tuple(after - before for before, after in pairwise(edges) if after > before)


ONE_LOOK = Look((MIN_UNITS,))


def look_pairs(pairs: int, looks: int) -> tuple[int, ...]:
    """The good pairs at each of `looks` equally spaced looks, the last at `pairs`.

    Raises LabkitError where fewer than 8 pairs would come before some look of several.
    """
    if looks < 1 or pairs < 1 or (looks > 1 and pairs < MIN_UNITS * looks):
        need = f"at least {MIN_UNITS} pairs were needed before each look"
        step = f"at most {max(1, pairs // MIN_UNITS)} looks at {pairs} pairs"
        raise LabkitError(need, got=f"{looks} looks at {pairs} pairs", next_step=step)
    return tuple(math.ceil(pairs * number / looks) for number in range(1, looks + 1))


def look_alpha(planned: Sequence[int], index: int, alpha: float = ALPHA) -> float:
    """The two-sided nominal level at look `index`, so that all looks together err with at most `alpha`.

    planned: the good pairs at each look; one look has `alpha` itself. An interval of 1 - look_alpha at each
    look is a repeated confidence interval: all of them hold at once with 1 - alpha, whatever the reason to
    stop (Jennison & Turnbull, Group Sequential Methods, 9). The level is spent by alpha ln(1 + (e - 1) t) at
    the share t of the pairs (Lan & DeMets 1983), which is near Pocock's constant level. The function of
    O'Brien-Fleming type would leave 0.0015 one-sided at half of 16 pairs: less than the smallest p of 8
    pairs, 2^-8, so that no run could ever stop there. Boundaries: Armitage, McPherson & Rowe 1969.
    """
    _check_planned(planned, index)
    if not 0 < alpha <= 1:
        raise LabkitError("alpha must lie above 0 and at most at 1", got=alpha)
    if len(planned) == 1:
        return alpha
    return 2 * float(special.ndtr(-_boundaries(tuple(planned[: index + 1]), planned[-1], alpha / 2)[-1]))


@lru_cache(maxsize=4096)
def sequential_p(p: float, planned: tuple[int, ...], index: int) -> float:
    """The overall level at which look `index` would just have crossed with this two-sided p.

    At most alpha exactly where p is at most `look_alpha(planned, index, alpha)`, so that Holm's method works
    on it whichever look a run ended at; never below p, and p itself where there is one look.
    """
    _check_planned(planned, index)
    if len(planned) == 1 or p >= 1:
        return min(p, 1.0)
    total = _spending(planned[index] / planned[-1])
    before = _spending(planned[index - 1] / planned[-1]) if index else 0.0
    # A look's level lies between what it spends itself and what has been spent by then.
    low, high = p / total, min(1.0, p / (total - before))
    if low >= 1 or look_alpha(planned, index, high) < p:
        return min(1.0, high)
    found = low
    for _ in range(STEPS):
        # The level of a look is all but proportional to the whole, so a few steps will do.
        known, found = found, min(high, found * p / look_alpha(planned, index, found))
        if abs(found - known) <= PRECISION * found:
            break
    return found


def stop_probabilities(planned: Sequence[int], regions: Sequence[Region], drift: float) -> tuple[float, ...]:
    """The chance to stop first at each look, where look k stops with its z inside regions[k] = (low, high).

    drift: the mean of z at the last look; at the share t of the pairs it is drift sqrt(t). What is missing
    to 1 never stops. An empty region (low >= high) stops nothing.
    """
    _check_planned(planned, 0)
    found, walk = [], Walk.start(drift)
    times = [pairs / planned[-1] for pairs in planned]
    for time, following, region in zip(times, [*times[1:], math.inf], regions, strict=True):
        found.append(walk.inside(time, region))
        if following < math.inf:
            walk = walk.outside(time, region, following)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Walk:
    """A Brownian motion with a drift among the paths that no look has stopped: at `time` its sub-density.

    nodes, mass: `(m,)` places of a quadrature and the density at each times its weight.
    """

    time: float
    nodes: Array
    mass: Array
    drift: float

    @classmethod
    def start(cls, drift: float) -> Walk:
        """At time 0 all of it is at 0."""
        return cls(0.0, np.zeros(1), np.ones(1), drift)

    def inside(self, time: float, region: Region) -> float:
        """The chance to have z in the region at a later time."""
        low, high = region
        if low >= high:
            return 0.0
        ahead = time - self.time
        mean, scale = self.nodes + self.drift * ahead, math.sqrt(ahead)
        # Upper tails: a difference of two numbers near 1 would lose the small ones.
        above = [special.ndtr((mean - z * math.sqrt(time)) / scale) for z in region]
        return float(self.mass @ (above[0] - above[1]))

    def outside(self, time: float, region: Region, following: float) -> Walk:
        """The walk at a later time, without what the region stopped; following: the time of the next look."""
        middle, spread = self.drift * time, REACH * math.sqrt(time)
        cuts = sorted(np.clip(np.multiply(region, math.sqrt(time)), middle - spread, middle + spread))
        parts = [(middle - spread, cuts[0]), (cuts[1], middle + spread)]
        if region[0] >= region[1]:
            parts = [(middle - spread, middle + spread)]
        # Nodes at most half an SD of the next step apart, where they are widest.
        points = min(MAX_NODES, 64 * math.ceil(math.pi * REACH * math.sqrt(time / (following - time)) / 32))
        rules = [_rule(points, low, high) for low, high in parts if high > low]
        nodes = np.concatenate([nodes for nodes, _ in rules]) if rules else np.zeros(1)
        weights = np.concatenate([weights for _, weights in rules]) if rules else np.zeros(1)
        return Walk(time, nodes, weights * self._density(nodes, time), self.drift)

    def _density(self, places: Array, time: float) -> Array:
        ahead = time - self.time
        steps = (places[:, None] - self.nodes - self.drift * ahead) / math.sqrt(ahead)
        return np.exp(-(steps**2) / 2) @ self.mass / math.sqrt(2 * math.pi * ahead)


@lru_cache(maxsize=2048)
def _boundaries(planned: tuple[int, ...], pairs: int, tail: float) -> tuple[float, ...]:
    """The z of each look up to the last of `planned`, of `pairs` in all, that spend a one-sided level."""
    found: list[float] = []
    walk, spent, times = Walk.start(0.0), 0.0, [count / pairs for count in planned]
    for number, time in enumerate(times):
        target = tail * _spending(time) - spent
        z = _crossing(walk, time, target)
        found.append(z)
        spent += target
        if number + 1 < len(times):
            walk = walk.outside(time, (z, math.inf), times[number + 1])
    return tuple(found)


def _crossing(walk: Walk, time: float, target: float) -> float:
    """The z above which the walk is with a chance of `target`."""
    low, high = -REACH, REACH
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if walk.inside(time, (middle, math.inf)) > target else (low, middle)
    return high


def _spending(share: float) -> float:
    """The part of the level that is spent at a share of the pairs: 0 at 0, 1 at 1."""
    return math.log1p((math.e - 1) * share)


@lru_cache(maxsize=64)
def _legendre(points: int) -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(points)


def _rule(points: int, low: float, high: float) -> tuple[Array, Array]:
    """Nodes and weights of Gauss and Legendre between low and high."""
    nodes, weights = _legendre(points)
    return (low + high) / 2 + (high - low) / 2 * nodes, (high - low) / 2 * weights
