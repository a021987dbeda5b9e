"""Unpaired: how much better one estimate is than another of a different run. Pure numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from labkit.core.metrics import Metric
from labkit.core.records import Estimate
from labkit.lab.reading.repeats import Spread

Found = Literal["improved", "worse", "equivalent", "unresolved"]
# Taken for rates and times where no arm was run often enough under the same code: what runs of one arm on a
# quiet machine were seen to differ by (SD of the log). Of bytes, scores and differences nothing is assumed.
ASSUMED = Spread(0.03, 0)
_TIE = 1e-12


@dataclass(frozen=True, slots=True)
class Difference:
    """How much better the second estimate is, with a 95% interval.

    value, low, high: ratios above 1, or differences above 0, where it is better in the metric's good
    direction. sampled: False where an estimate rests on one visit. exact: neither has any noise.
    """

    value: float
    low: float
    high: float
    sampled: bool = True
    exact: bool = False


def difference(metric: Metric, before: Estimate, after: Estimate, spread: Spread | None) -> Difference:
    """The interval of two independent estimates from the interval of each (MOVER: Zou & Donner 2008).

    It is never narrower than what repeated runs differ by where that is known, which is more than the visits
    of one run show; for a rate or a time without it, ASSUMED. What is exact stays so. Raises nothing; a ratio
    metric that is not positive gives an interval without bounds.
    """
    exact = _exact(metric, before, spread) and _exact(metric, after, spread)
    sampled = exact or metric.source != "visit" or min(before.n, after.n) > 1
    if metric.scale == "ratio" and min(before.value, after.value) <= 0:
        same = before.value == after.value and exact
        return Difference(1.0, *((1.0, 1.0) if same else (0.0, math.inf)), sampled, same)
    a, b = (_ends(metric, estimate) for estimate in (before, after))
    size = b[0] - a[0]
    down = math.hypot(b[0] - b[1], a[2] - a[0])
    up = math.hypot(b[2] - b[0], a[0] - a[1])
    least = 0.0 if exact else _reach(metric, spread)
    low, high = size - max(down, least), size + max(up, least)
    if metric.better == "lower":
        size, low, high = 0.0 - size, 0.0 - high, 0.0 - low
    if metric.scale == "ratio":
        size, low, high = math.exp(size), math.exp(low), math.exp(high)
    return Difference(size, low, high, sampled, exact)


def is_assumed(metric: Metric) -> bool:
    """Whether ASSUMED stands for what runs differ by in this metric where that is not known."""
    return metric.scale == "ratio" and metric.axis == "speed"


def classified(metric: Metric, change: Difference, margin: float) -> tuple[Found, str]:
    """The verdict of an interval against a margin, and why where there is none.

    An interval wholly beyond the margin decides, or wholly within; an end on the margin is on neither side.
    """
    low, high, limit = change.low, change.high, margin
    if metric.scale == "ratio":
        low, high = (
            math.log(end) if 0 < end < math.inf else math.copysign(math.inf, end - 1) for end in (low, high)
        )
        limit = math.log1p(margin)
    if not change.sampled:
        return "unresolved", "one visit"
    if low - limit > _TIE:
        return "improved", ""
    if -limit - high > _TIE:
        return "worse", ""
    if low + limit > _TIE and limit - high > _TIE:
        return "equivalent", ""
    return "unresolved", ""


def _exact(metric: Metric, estimate: Estimate, spread: Spread | None) -> bool:
    """Whether a value has no noise: counted, or bytes that neither visits nor runs have seen differ."""
    alike = estimate.low == estimate.high and (spread is None or spread.sd <= _TIE)
    return alike and metric.axis != "speed" and (metric.source != "visit" or estimate.n > 1)


def _ends(metric: Metric, estimate: Estimate) -> tuple[float, float, float]:
    if metric.scale == "absolute":
        return estimate.value, estimate.low, estimate.high
    low = estimate.low if estimate.low > 0 else estimate.value**2 / max(estimate.high, estimate.value)
    return math.log(estimate.value), math.log(low), math.log(max(estimate.high, estimate.value))


def _reach(metric: Metric, spread: Spread | None) -> float:
    """Half the 95% interval of what two runs of one arm differ by."""
    if spread is None:
        return ASSUMED.reach() if is_assumed(metric) else 0.0
    return spread.reach()
