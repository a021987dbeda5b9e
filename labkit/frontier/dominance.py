"""Dominance between points, decided by intervals and never by a weighted score.

It is irreflexive and antisymmetric but not transitive: a may overlap b, and b may overlap c, where a and c
are wholly apart. Points can even dominate each other in a ring, which is why `judge` looks beyond pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from labkit.core.records import Estimate
from labkit.frontier.points import Axis, Group, Point

Status = Literal["frontier", "dominated", "incomparable"]


@dataclass(frozen=True, slots=True)
class Standing:
    """What became of a point. dominated_by: the points that dominate it; missing: its unmeasured axes."""

    point: Point
    status: Status
    dominated_by: tuple[Point, ...] = ()
    missing: tuple[Axis, ...] = ()


def wholly_better(a: Estimate, b: Estimate, axis: Axis) -> bool:
    """Whether a's whole interval lies on the good side of b's, further off than the axis resolves."""
    gap = a.low - b.high if axis.better == "higher" else b.low - a.high
    return gap > axis.resolution


def better_axes(a: Point, b: Point) -> tuple[Axis, ...]:
    """The axes on which a is wholly better than b; an axis that either lacks is not among them."""
    found = []
    for axis in a.group.axes:
        mine, other = a.values[axis.name], b.values[axis.name]
        if mine is not None and other is not None and wholly_better(mine, other, axis):
            found.append(axis)
    return tuple(found)


def dominates(a: Point, b: Point) -> bool:
    """a is wholly better than b on at least one axis and wholly worse on none.

    False between groups, and wherever either point lacks an axis.
    """
    if a.group != b.group or a.missing() or b.missing():
        return False
    return bool(better_axes(a, b)) and not better_axes(b, a)


def judge(points: Sequence[Point]) -> tuple[Standing, ...]:
    """The standing of every point within its group, in the order given.

    A point is dominated where another dominates it and is not, over whatever chain, dominated by it in
    turn: of points in a ring none is worse than the rest, and without this a group could lose all its points.
    """
    groups: dict[Group, list[Point]] = {}
    for point in points:
        groups.setdefault(point.group, []).append(point)
    standings = {id(s.point): s for members in groups.values() for s in _judge_group(members)}
    return tuple(standings[id(point)] for point in points)


def _judge_group(members: Sequence[Point]) -> list[Standing]:
    beats = {i: {j for j, b in enumerate(members) if dominates(a, b)} for i, a in enumerate(members)}
    reach = {i: _reachable(i, beats) for i in beats}
    standings = []
    for i, point in enumerate(members):
        above = tuple(members[j] for j in beats if i in beats[j] and j not in reach[i])
        missing = point.missing()
        status: Status = "incomparable" if missing else "dominated" if above else "frontier"
        standings.append(Standing(point, status, above, missing))
    return standings


def _reachable(start: int, edges: Mapping[int, set[int]]) -> set[int]:
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        new = edges[waiting.pop()] - seen
        seen |= new
        waiting.extend(new)
    return seen
