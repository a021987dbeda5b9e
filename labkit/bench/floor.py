"""The A/A floor: how far two equal arms lie apart by chance, or by the process that they happen to run in.

Knows samples of a control; not where its record lies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from labkit.bench.statistics import hodges_lehmann, walsh_interval
from labkit.core.metrics import METRICS


@dataclass(frozen=True, slots=True)
class Spread:
    """What two equal arms differed by: the estimate with its 95% interval, in log ratios, or in the metric's
    unit where that is absolute."""

    estimate: float
    low: float
    high: float


def spread(metric: str, first: Sequence[float], second: Sequence[float]) -> Spread | None:
    """The spread of a metric over the pairs of an A/A control; None where ratios cannot be taken."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if METRICS[metric].scale == "ratio":
        if min(a.min(), b.min()) <= 0:
            return None
        a, b = np.log(a), np.log(b)
    low, high = walsh_interval(b - a)
    return Spread(float(hodges_lehmann(b - a)), float(low), float(high))


def floors(spreads: Mapping[str, Spread], pairs: int, now: int) -> dict[str, float]:
    """Metric -> floor of a run of `now` pairs, from the spreads over `pairs` pairs of a control.

    Chance shrinks with the square root of the number of pairs: half the interval's length is scaled by it.
    Where the arms did differ it is their bias, which no number of pairs makes smaller.
    """
    scale, known = math.sqrt(pairs / max(now, 1)), biases(spreads)
    by_chance = {m: _shown(m, (found.high - found.low) / 2 * scale) for m, found in spreads.items()}
    return {metric: known[metric] or by_chance[metric] for metric in spreads}


def biases(spreads: Mapping[str, Spread]) -> dict[str, float]:
    """Metric -> how far apart the equal arms lay beyond chance, by their processes or their order.

    The farther end of the interval where that leaves out zero, else 0.
    """
    return {metric: _shown(metric, _bias(found)) for metric, found in spreads.items()}


def _bias(found: Spread) -> float:
    return max(abs(found.low), abs(found.high)) if found.low > 0 or found.high < 0 else 0.0


def _shown(metric: str, reach: float) -> float:
    """A distance in log ratios as a ratio less 1; one in a unit as it is."""
    return math.expm1(reach) if METRICS[metric].scale == "ratio" else reach
