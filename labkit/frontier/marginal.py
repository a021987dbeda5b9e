"""The marginal point: what more bytes buy along a frontier, in speed and in quality.

A step from one point of the frontier to the next larger one has no meaning between them: nothing was measured
there. What is told per 100 MB is the price of the whole step, not that its half can be bought.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from labkit.core.records import Estimate
from labkit.frontier.advantage import Advantage, advantage, gain
from labkit.frontier.axis import Axis
from labkit.frontier.dominance import Standing, better_axes, judge
from labkit.frontier.points import Group, Point

MORE_BYTES = 100e6
Word = Literal["better", "worse", "same"]


@dataclass(frozen=True, slots=True)
class Gain:
    """What a step gives on one axis; of a loss the numbers are negative.

    advantage: the improvement as on the axis. total: as a difference in the axis's unit. per: the total for
    each `unit_bytes` of the step, None where the bytes of the step are not apart from none. word: `better` or
    `worse` beyond the axis's margin.
    """

    axis: Axis
    advantage: Advantage
    total: Estimate
    per: Estimate | None
    word: Word


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A step along the frontier to a larger point. extra: the bytes it takes. gains: speed and quality."""

    smaller: Point
    larger: Point
    extra: Estimate
    unit_bytes: float
    gains: tuple[Gain, ...]


@dataclass(frozen=True, slots=True)
class Within:
    """What fits a budget of bytes in one group, and what `more` bytes would add.

    best: the frontier of all that fits, smallest first. unlocked: what would join the frontier with `more`
    bytes, and upgrades: the step from the largest of `best` to each. beyond: the smallest point of the
    frontier that even then is too large, where nothing is unlocked; None where there is none. incomparable:
    what may fit and is not judged, for lack of the axes it names; its size may be among them.
    """

    group: Group
    budget: float
    more: float
    best: tuple[Point, ...]
    unlocked: tuple[Point, ...]
    upgrades: tuple[Upgrade, ...]
    beyond: Point | None
    incomparable: tuple[Standing, ...] = ()


def upgrades(standings: Sequence[Standing], unit_bytes: float = MORE_BYTES) -> tuple[Upgrade, ...]:
    """The steps between neighbours by size, smallest first, along the frontier of each group."""
    found: list[Upgrade] = []
    for group in dict.fromkeys(s.point.group for s in standings):
        along = _by_size(s.point for s in standings if s.point.group == group and s.status == "frontier")
        found += (_upgrade(a, b, unit_bytes) for a, b in pairwise(along))
    return tuple(found)


def incomparable(standings: Sequence[Standing]) -> tuple[Standing, ...]:
    """What is in no frontier and no step because it was not measured on an axis."""
    return tuple(s for s in standings if s.status == "incomparable")


def within(standings: Sequence[Standing], budget: float, more: float = MORE_BYTES) -> tuple[Within, ...]:
    """For each group what fits `budget` bytes, and what the next `more` bytes would buy.

    A point fits where the whole of its interval does. Only what fits is judged, so that a point which only
    a larger one dominates is among the best.
    """
    groups = dict.fromkeys(s.point.group for s in standings)
    return tuple(
        _within(group, [s.point for s in standings if s.point.group == group], budget, more)
        for group in groups
    )


def _within(group: Group, points: Sequence[Point], budget: float, more: float) -> Within:
    best, richer = _best(points, budget), _best(points, budget + more)
    unlocked = tuple(p for p in richer if not _fits(p, budget))
    steps = tuple(_upgrade(best[-1], p, more) for p in unlocked) if best else ()
    larger = (p for p in _best(points, float("inf")) if not _fits(p, budget + more))
    beyond = None if unlocked else next(larger, None)
    lacking = incomparable(judge([p for p in points if p.values["size"] is None or _fits(p, budget)]))
    return Within(group, budget, more, best, unlocked, steps, beyond, lacking)


def _best(points: Sequence[Point], limit: float) -> tuple[Point, ...]:
    judged = judge([p for p in points if _fits(p, limit)])
    return _by_size(s.point for s in judged if s.status == "frontier")


def _fits(point: Point, limit: float) -> bool:
    size = point.values["size"]
    return size is not None and size.high <= limit


def _by_size(points: Iterable[Point]) -> tuple[Point, ...]:
    return tuple(sorted(points, key=lambda p: (_size(p).value, p.label)))


def _size(point: Point) -> Estimate:
    size = point.values["size"]
    assert size is not None, "a point of the frontier has a size"
    return size


def _upgrade(smaller: Point, larger: Point, unit_bytes: float) -> Upgrade:
    a, b = _size(smaller), _size(larger)
    extra = Estimate(b.value - a.value, b.low - a.high, b.high - a.low, min(a.n, b.n), "bytes")
    better, worse = better_axes(larger, smaller), better_axes(smaller, larger)
    gains = []
    for axis in larger.group.axes:
        changed, total = advantage(larger, smaller, axis), gain(larger, smaller, axis)
        if axis.name != "size" and changed is not None and total is not None:
            word: Word = "better" if axis in better else "worse" if axis in worse else "same"
            gains.append(Gain(axis, changed, total, _per(total, extra, unit_bytes), word))
    return Upgrade(smaller, larger, extra, unit_bytes, tuple(gains))


def _per(total: Estimate, extra: Estimate, unit_bytes: float) -> Estimate | None:
    """The price of the step; the widest that both intervals allow."""
    if extra.low <= 0:
        return None
    ends = [end / size for end in (total.low, total.high) for size in (extra.low, extra.high)]
    values = (total.value / extra.value, min(ends), max(ends))
    return Estimate(*(unit_bytes * v for v in values), n=total.n, unit=total.unit)
