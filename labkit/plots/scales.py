"""Scales: limits and ticks that stay where they are when a point is added. Knows numbers, no pictures.

Positions are ratios to one origin, on a log scale whose ends come from a short ladder. A picture of a group
with one more point has the same scale while that point is within the rungs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# How far from the origin an end of the scale may lie: the rungs of the ladder, as ratios.
RUNGS = (1.1, 1.25, 1.5, 2.5, 4.0, 8.0, 16.0, 64.0, 1024.0, 1e6)
# KL has the same scale in every picture; what is smaller than its first tick stands on that.
NATS_TICKS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
# Ticks by how wide a scale is, as (up to this ratio of its ends, ticks).
_TENTHS = tuple(n / 10 for n in range(1, 41))
_NICE = (
    (1.5, tuple(n / 20 for n in range(12, 33))),
    (3.0, _TENTHS),
    (math.inf, tuple(m * 10.0**e for e in range(-6, 8) for m in (1.0, 2.0, 5.0))),
)
# A value on a rung, back from its logarithm, is still on it.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Scale:
    """The ends of a log scale of ratios, and its ticks."""

    low: float
    high: float
    ticks: tuple[float, ...]


def ratio_scale(values: Sequence[float], ends: Sequence[float] = ()) -> Scale:
    """The scale for ratios to an origin. ends: those of their intervals, which move an end one rung at most.

    Values that are no positive number are left out. Beyond the last rung an end is the farthest value itself.
    """
    logs = [math.log(v) for v in values if v > 0 and math.isfinite(v)]
    reaches = [math.log(v) for v in ends if v > 0 and math.isfinite(v)]
    low = math.exp(-_end([-x for x in logs], [-x for x in reaches]))
    high = math.exp(_end(logs, reaches))
    return Scale(low, high, ticks_between(low, high))


def nats_place(nats: float) -> float:
    """The decimal logarithm of a KL, held within the fixed ticks."""
    return math.log10(min(max(nats, NATS_TICKS[0]), NATS_TICKS[-1]))


def _end(logs: Sequence[float], reaches: Sequence[float]) -> float:
    rung = _rung(max(logs, default=0.0))
    if rung >= len(RUNGS):
        return max(logs)
    wider = min(_rung(max(reaches, default=0.0)), rung + 1, len(RUNGS) - 1)
    return math.log(RUNGS[max(rung, wider)])


def _rung(log: float) -> int:
    """The number of the first rung that holds it; that of none is one too many."""
    return next((i for i, rung in enumerate(RUNGS) if log <= math.log(rung) + _ROUNDING), len(RUNGS))


def ticks_between(low: float, high: float, most: int = 12) -> tuple[float, ...]:
    """Round ratios between the ends: 1 first, then what is off the others by the scale over `most`."""
    start, stop = math.log(low), math.log(high)
    chosen: list[float] = []
    nice = next(ticks for widest, ticks in _NICE if high / low <= widest)
    for tick in sorted(nice, key=lambda t: (abs(math.log(t)), t)):
        at = math.log(tick)
        near = any(abs(at - math.log(c)) < (stop - start) / most for c in chosen)
        if start - 1e-9 <= at <= stop + 1e-9 and not near:
            chosen.append(tick)
    return tuple(sorted(chosen))
