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
    Where the interval leaves out zero the arms did differ, by their processes or their order, and no number
    of pairs makes that smaller: the floor is then the farther end of the interval as it is.
    """
    return {
        metric: _floor(metric, found, math.sqrt(pairs / max(now, 1))) for metric, found in spreads.items()
    }


def _floor(metric: str, found: Spread, scale: float) -> float:
    biased = found.low > 0 or found.high < 0
    reach = max(abs(found.low), abs(found.high)) if biased else (found.high - found.low) / 2 * scale
    return math.expm1(reach) if METRICS[metric].scale == "ratio" else reach
