"""Points: results as positions on the axes speed, quality and size, within groups that may be compared.

Knows where a result stands; not who dominates whom, nor where results come from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit.core.errors import NoRecords
from labkit.core.metrics import METRICS
from labkit.core.records import Estimate
from labkit.frontier.axis import Axis, AxisName, axes_for, registered_in, speed_metric
from labkit.frontier.labels import distinct_labels, short_label, windows_label, workload_label
from labkit.frontier.versions import Row, gather

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class Group:
    """Points that may be compared: one machine, model family, workload, quality reference and windows.

    reference: the reference arm's label. windows: what KL was taken over, with windows_hash empty where
    nothing was scored. code_hash, packages_hash: None where several were put together by name.
    """

    machine: str
    family: str
    workload: str
    workload_hash: str
    reference: str
    reference_hash: str
    windows: str
    windows_hash: str
    code_hash: str | None
    packages_hash: str | None
    axes: tuple[Axis, Axis, Axis]


@dataclass(frozen=True, slots=True)
class Point:
    """One arm's position, from one record. values: axis name -> estimate, None where unmeasured.

    An estimate with a part that is no number (NaN) is none. label: the arm's, made unique within the group.
    short_label: without the model that all labels share. path: of the record, below the lab root.
    """

    group: Group
    arm_hash: str
    plan_hash: str
    label: str
    short_label: str
    run_id: str
    path: str
    started_at: str
    experiment: str
    quiet: bool | None
    code_hash: str | None
    packages_hash: str | None
    values: Mapping[AxisName, Estimate | None]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", {name: _number(each) for name, each in self.values.items()})

    def missing(self) -> tuple[Axis, ...]:
        """The axes on which nothing was measured."""
        return tuple(axis for axis in self.group.axes if self.values[axis.name] is None)


def points(frame: pandas.DataFrame, *, across_versions: bool = False) -> tuple[Point, ...]:
    """Points of the groups that `labkit.frontier.versions.gather` makes of `query.frontier_points`."""
    groups = gather(frame, across_versions=across_versions).groups
    return tuple(p for rows in groups for p in group_points(rows))


def no_points(got: str) -> NoRecords:
    """What to raise where a lab has nothing that a frontier could be made of."""
    need = "a frontier needs at least one complete record in results/"
    return NoRecords(need, got=got, next_step="labkit run experiments/<file>.py")


def group_points(rows: Sequence[Row]) -> list[Point]:
    """The points of the rows of one group, in their order."""
    group, labels = _group(rows), distinct_labels(rows)
    shorts = [short_label(label, labels) for label in labels]
    return [_point(group, *each) for each in zip(rows, labels, shorts, strict=True)]


def _group(rows: Sequence[Row]) -> Group:
    first = next((r for r in rows if r["windows_hash"]), rows[0])
    shared = ("machine", "family", "workload_hash", "reference_hash", "windows_hash")
    labels = {r["arm_hash"]: r["label"] for r in rows}
    return Group(
        **{k: first[k] for k in shared},
        workload=workload_label(first),
        reference=labels.get(first["reference_hash"], first["reference_hash"]),
        windows=windows_label(first),
        code_hash=_only(r["code_hash"] for r in rows),
        packages_hash=_only(r["packages_hash"] for r in rows),
        axes=axes_for(
            speed_metric([(list(r["improves"]), list(r["holds"])) for r in rows]),
            [margin for row in rows for margin in registered_in(row)],
        ),
    )


def _point(group: Group, row: Row, label: str, short: str) -> Point:
    copied = (
        *("arm_hash", "plan_hash", "run_id", "path", "started_at", "experiment", "quiet"),
        *("code_hash", "packages_hash"),
    )
    return Point(
        **{k: row[k] for k in copied},
        group=group,
        label=label,
        short_label=short,
        values={axis.name: _position(axis, row) for axis in group.axes},
    )


def _number(estimate: Estimate | None) -> Estimate | None:
    """NaN is neither better nor worse than anything, so that it would stand above what was measured."""
    if estimate is None or any(math.isnan(end) for end in (estimate.value, estimate.low, estimate.high)):
        return None
    return estimate


def _only(values: Iterable[str | None]) -> str | None:
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _position(axis: Axis, row: Row) -> Estimate | None:
    """The sum over the axis's parts; intervals add up end to end, which is wider than they need be."""
    # A KL over windows that are not known compares with nothing, so it counts as unmeasured.
    unknown = axis.name == "quality" and not row["windows_hash"]
    parts = [None if unknown else _estimate(name, row) for name in axis.parts]
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return _itself(axis, row)
    total = [sum(getattr(p, end) for p in known) for end in ("value", "low", "high")]
    return Estimate(*total, n=min(p.n for p in known), unit=known[0].unit)


def _estimate(name: str, row: Row) -> Estimate | None:
    if row.get(name) is None:
        return None
    value = float(row[name])
    low, high = (
        float(row[end]) if row.get(end) is not None else value for end in (f"{name}_low", f"{name}_high")
    )
    return Estimate(value, low, high, int(row.get(f"{name}_n") or 1), METRICS[name].unit)


def _itself(axis: Axis, row: Row) -> Estimate | None:
    """KL of the reference to itself is zero by definition, measured or not."""
    if axis.name == "quality" and row["arm_hash"] == row["reference_hash"]:
        return Estimate(0.0, 0.0, 0.0, 1, axis.unit)
    return None
