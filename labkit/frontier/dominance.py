"""Dominance between points, decided by intervals and margins and never by a weighted score.

It is irreflexive and antisymmetric but not transitive: a may overlap b, and b may overlap c, where a and c
are wholly apart; and losses within the margin add up. Points can even dominate each other in a ring, which is
why `judge` looks beyond pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from labkit.core.records import Estimate
from labkit.frontier.axis import Axis
from labkit.frontier.points import Group, Point

Status = Literal["frontier", "dominated", "incomparable"]


@dataclass(frozen=True, slots=True)
class Standing:
    """What became of a point. dominated_by: the frontier's points that dominate it.

    missing: the axes on which it was not measured.
    """

    point: Point
    status: Status
    dominated_by: tuple[Point, ...] = ()
    missing: tuple[Axis, ...] = ()


def wholly_better(a: Estimate, b: Estimate, axis: Axis) -> bool:
    """Whether a's whole interval lies on the good side of b's, and further off than the axis's margin.

    On a ratio axis low_a / high_b > 1 + margin where higher is better, low_b / high_a where lower is; the
    same of differences on an absolute axis, which must exceed its resolution as well.
    """
    near, far = (a.low, b.high) if axis.better == "higher" else (b.low, a.high)
    if axis.scale == "ratio":
        return near > far * (1 + axis.margin)
    return near - far > max(axis.margin, axis.resolution)


def better_axes(a: Point, b: Point) -> tuple[Axis, ...]:
    """The axes on which a is wholly better than b by the margin; one that either lacks is not among them."""
    return tuple(x for x, mine, other in _shared(a, b) if wholly_better(mine, other, x))


def dominates(a: Point, b: Point) -> bool:
    """a is wholly better than b beyond the margin on at least one axis, and worse on none.

    It is worse on an axis also where only its estimate is worse by the margin: an interval so wide that it
    hides a loss excuses none. False between groups, and wherever either point lacks an axis.
    """
    if a.group != b.group or a.missing() or b.missing():
        return False
    return bool(better_axes(a, b)) and not (better_axes(b, a) or _seems_worse(a, b))


def judge(points: Sequence[Point]) -> tuple[Standing, ...]:
    """The standing of every point within its group, in the order given.

    A point is dominated where one on the frontier dominates it that it does not, over whatever chain,
    dominate in turn: of points in a ring none is worse than the rest. And what is itself dominated puts
    nothing down: losses within the margin would else add up until the frontier lies wholly below a point
    that it has shut out.
    """
    groups: dict[Group, list[Point]] = {}
    for point in points:
        groups.setdefault(point.group, []).append(point)
    standings = {id(s.point): s for members in groups.values() for s in _judge_group(members)}
    return tuple(standings[id(point)] for point in points)


def _shared(a: Point, b: Point) -> list[tuple[Axis, Estimate, Estimate]]:
    """The axes that both have, with both estimates."""
    found = []
    for axis in a.group.axes:
        mine, other = a.values[axis.name], b.values[axis.name]
        if mine is not None and other is not None:
            found.append((axis, mine, other))
    return found


def _seems_worse(a: Point, b: Point) -> bool:
    return any(wholly_better(_middle(theirs), _middle(mine), x) for x, mine, theirs in _shared(a, b))


def _middle(estimate: Estimate) -> Estimate:
    return Estimate(estimate.value, estimate.value, estimate.value, estimate.n, estimate.unit)


def _judge_group(members: Sequence[Point]) -> list[Standing]:
    beats = {i: {j for j, b in enumerate(members) if dominates(a, b)} for i, a in enumerate(members)}
    above = _above(beats)
    standings = []
    for i, point in enumerate(members):
        missing, by = point.missing(), tuple(members[j] for j in sorted(above[i]))
        status: Status = "incomparable" if missing else "dominated" if by else "frontier"
        standings.append(Standing(point, status, by, missing))
    return standings


def _above(beats: Mapping[int, set[int]]) -> dict[int, set[int]]:
    """Of each point the undominated ones that beat it from outside its ring."""
    reach = {i: _reachable(i, beats) for i in beats}
    found: dict[int, set[int]] = {}
    # Whoever reaches more stands earlier: all that may beat a point from outside its ring is settled by then.
    for i in sorted(beats, key=lambda i: -len(reach[i] | {i})):
        found[i] = {j for j in beats if i in beats[j] and j not in reach[i] and not found[j]}
    return found


def _reachable(start: int, edges: Mapping[int, set[int]]) -> set[int]:
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        new = edges[waiting.pop()] - seen
        seen |= new
        waiting.extend(new)
    return seen
