"""Advantage: what one point has over another on one axis, with its interval. Judges no dominance."""

from __future__ import annotations

from dataclasses import dataclass

from labkit.core.records import Estimate
from labkit.frontier.axis import Axis
from labkit.frontier.points import Point


@dataclass(frozen=True, slots=True)
class Advantage:
    """An improvement of a point over another: above 1, or above 0 on an absolute axis, it is better.

    value, low, high: a ratio on a ratio axis (inf where the divisor's interval reaches zero), else a
    difference in the axis's unit. The intervals of two runs are put end against end, as for dominance, which
    is wider than a paired verdict's.
    """

    axis: Axis
    value: float
    low: float
    high: float


def advantage(point: Point, other: Point, axis: Axis) -> Advantage | None:
    """What `point` has over `other`; None where either was not measured on the axis."""
    mine, theirs = point.values[axis.name], other.values[axis.name]
    if mine is None or theirs is None:
        return None
    over, under = (mine, theirs) if axis.better == "higher" else (theirs, mine)
    if axis.scale == "ratio":
        ends = (
            (over.value, under.value),
            (max(0.0, over.low), under.high),
            (over.high, under.low),
        )
        return Advantage(axis, *(_quotient(a, b) for a, b in ends))
    gained = _difference(over, under, axis)
    return Advantage(axis, gained.value, gained.low, gained.high)


def gain(point: Point, other: Point, axis: Axis) -> Estimate | None:
    """The same as a difference in the axis's own unit, above 0 where `point` is better."""
    mine, theirs = point.values[axis.name], other.values[axis.name]
    if mine is None or theirs is None:
        return None
    over, under = (mine, theirs) if axis.better == "higher" else (theirs, mine)
    return _difference(over, under, axis)


def _difference(over: Estimate, under: Estimate, axis: Axis) -> Estimate:
    ends = (over.value - under.value, over.low - under.high, over.high - under.low)
    return Estimate(*ends, n=min(over.n, under.n), unit=axis.unit)


def _quotient(a: float, b: float) -> float:
    return a / b if b > 0 else float("inf")
