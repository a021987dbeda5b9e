"""Growth: the hypervolume of each group's frontier after every record, against a corner that stays.

Positions are taken relative to the reference arm of the same record, so that a machine that was faster on
another day moves nothing, nor code or packages that made every arm faster: records of all versions are one
history. Nothing is ever taken away: the volume of a group cannot fall.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from labkit.frontier.axis import Axis, AxisName
from labkit.frontier.hypervolume import Place, hypervolume, undominated
from labkit.frontier.points import Group, Point, group_points
from labkit.frontier.versions import gather

if TYPE_CHECKING:
    import pandas

# The corner that volumes are measured from: a quarter of the reference's speed, four times its bytes, and a
# nat of KL. The reference itself is 1 in every dimension; what is beyond the corner on an axis adds nothing.
CORNER: Mapping[AxisName, float] = {"speed": 0.25, "size": 4.0, "quality": 1.0}
End = Literal["value", "low", "high"]
_OPPOSITE: Mapping[End, End] = {"value": "value", "low": "high", "high": "low"}


@dataclass(frozen=True, slots=True)
class Moment:
    """The frontier of a group once a record was there.

    dimensions: the axes that its volume spans. volume: that of the estimates; low, high: of the bad and of
    the good ends of the intervals. The reference alone has 1. grew: the labels whose estimates added to it.
    changed: `code` and `packages` where they are other ones than those of the record before.
    """

    group: Group
    dimensions: tuple[AxisName, ...]
    run_id: str
    path: str
    started_at: str
    experiment: str
    code_hash: str | None
    packages_hash: str | None
    changed: tuple[str, ...]
    volume: float
    low: float
    high: float
    grew: tuple[str, ...]


def moments(frame: pandas.DataFrame) -> tuple[Moment, ...]:
    """From `labkit.store.query.frontier_records` to one moment per record and group, oldest first.

    A group that scored nothing is taken in speed and size alone; the dimensions are those of its whole
    history. A record without its reference arm is placed by the first of the same code and packages; where
    there is none it adds nothing.
    """
    groups = gather(frame, across_versions=True, every=True).groups
    return tuple(moment for rows in groups for moment in _of_group(group_points(rows)))


def _of_group(points: Sequence[Point]) -> Iterator[Moment]:
    ordered = sorted(points, key=lambda p: (p.started_at, p.run_id))
    first = {_version(p): p for p in reversed(ordered) if _is_reference(p)}
    axes, before = _spanned(ordered), ordered[0]
    places: dict[End, list[Place]] = {"value": [], "low": [], "high": []}
    records: dict[str, list[Point]] = {}
    for point in ordered:
        records.setdefault(point.run_id, []).append(point)
    for record in records.values():
        own = next((p for p in record if _is_reference(p)), first.get(_version(record[0])))
        grew = tuple(p.label for p in record if own is not None and _add(p, own, axes, places))
        yield _moment(record[0], before, axes, places, grew)
        before = record[0]


def _version(point: Point) -> tuple[str | None, str | None]:
    return point.code_hash, point.packages_hash


def _is_reference(point: Point) -> bool:
    return point.arm_hash == point.group.reference_hash


def _spanned(points: Sequence[Point]) -> tuple[Axis, ...]:
    """Speed and size, and quality where an arm other than the reference has it."""
    tried = [p for p in points if not _is_reference(p)] or points
    return tuple(
        axis
        for axis in points[0].group.axes
        if axis.name != "quality" or any(p.values["quality"] is not None for p in tried)
    )


def _add(point: Point, reference: Point, axes: Sequence[Axis], places: dict[End, list[Place]]) -> bool:
    """Put the point's place among the others; whether it adds volume of its own."""
    before = hypervolume(places["value"])
    for end, known in places.items():
        place = _place(point, reference, axes, end)
        if place is not None:
            known[:] = undominated([*known, place])
    return hypervolume(places["value"]) > before


def _place(point: Point, reference: Point, axes: Sequence[Axis], end: End) -> Place | None:
    """One coordinate per axis, 0 at the corner and 1 at the reference; None where one is not known."""
    found = [_coordinate(point, reference, axis, end) for axis in axes]
    return tuple(x for x in found if x is not None) if None not in found else None


def _coordinate(point: Point, reference: Point, axis: Axis, end: End) -> float | None:
    mine, origin = point.values[axis.name], reference.values[axis.name]
    if mine is None or origin is None:
        return None
    corner = CORNER[axis.name]
    if point is reference:
        return 1.0
    ends = (end, _OPPOSITE[end]) if axis.better == "higher" else (_OPPOSITE[end], end)
    value, of = getattr(mine, ends[0]), getattr(origin, ends[1])
    if axis.scale == "absolute":
        return 1 - max(0.0, value) / corner
    return 1 - math.log(value / of) / math.log(corner) if value > 0 and of > 0 else 0.0


def _moment(
    point: Point,
    before: Point,
    axes: Sequence[Axis],
    places: Mapping[End, Sequence[Place]],
    grew: tuple[str, ...],
) -> Moment:
    volume, low, high = (hypervolume(places[end]) for end in ("value", "low", "high"))
    versions = zip(("code", "packages"), _version(before), _version(point), strict=True)
    return Moment(
        group=point.group,
        dimensions=tuple(axis.name for axis in axes),
        run_id=point.run_id,
        path=point.path,
        started_at=point.started_at,
        experiment=point.experiment,
        code_hash=point.code_hash,
        packages_hash=point.packages_hash,
        changed=tuple(name for name, old, new in versions if old != new),
        volume=volume,
        low=low,
        high=high,
        grew=grew,
    )
