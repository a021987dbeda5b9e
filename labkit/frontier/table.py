"""Table: the judged points of every group as one frame, the form that pictures and notebooks take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from labkit.frontier.axis import AxisName
from labkit.frontier.dominance import Standing, judge
from labkit.frontier.points import Group, Point, points
from labkit.frontier.tradeoff import TradeOff, trade_offs
from labkit.frontier.words import beside, phrase

if TYPE_CHECKING:
    import pandas

_NAN = float("nan")
_OF_GROUP = (
    *("machine", "family", "workload", "workload_hash", "reference", "reference_hash"),
    *("windows", "windows_hash"),
)
_OF_POINT = (
    *("label", "short_label", "arm_hash", "plan_hash", "run_id", "experiment", "quiet"),
    *("code_hash", "packages_hash"),
)
_AXES: tuple[AxisName, ...] = ("speed", "quality", "size")
COLUMNS = (
    *("group", *_OF_GROUP, "speed_metric", *_OF_POINT, "record"),
    *("status", "dominated_by", "missing"),
    *(f"{axis}{end}" for axis in _AXES for end in ("", "_low", "_high", "_margin")),
    *("origin", "speed_origin", "size_origin", "beside_reference", "trade_offs"),
)


def frontier_frame(latest: pandas.DataFrame, *, across_versions: bool = False) -> pandas.DataFrame:
    """From `labkit.store.query.frontier_points` to one judged row per point; see `standing_frame`."""
    return standing_frame(judge(points(latest, across_versions=across_versions)))


def standing_frame(standings: Sequence[Standing]) -> pandas.DataFrame:
    """One row per point with COLUMNS.

    group: the number of the group, from 0; only points of one group may be compared.
    record: where it lies, below the lab root.
    status: `frontier`, `dominated` or `incomparable`. dominated_by: labels. missing: axis names.
    speed in tok/s, quality in nats (lower is better), size in bytes; NaN where unmeasured. margin: what a
    gain must exceed on the axis. origin: the label of the group's reference, else of its oldest point, with
    its speed and size, to which pictures put the others in relation; NaN where no point has both.
    beside_reference: what is better and worse than the reference, in words. trade_offs: a phrase for each.
    """
    import pandas

    numbers: dict[Group, int] = {}
    for standing in standings:
        numbers.setdefault(standing.point.group, len(numbers))
    rows: list[dict[str, Any]] = []
    for group, number in numbers.items():
        members = [s for s in standings if s.point.group == group]
        shared, trades = _origin([s.point for s in members]), trade_offs(members)
        rows += (_row(s, number) | shared | _words(s.point, members, trades) for s in members)
    return pandas.DataFrame(rows, columns=list(COLUMNS))


def _words(point: Point, members: Sequence[Standing], trades: Sequence[TradeOff]) -> dict[str, Any]:
    reference = next((s.point for s in members if s.point.arm_hash == point.group.reference_hash), None)
    apart = reference is point or bool(point.missing())
    return {
        "beside_reference": "" if reference is None or apart else beside(point, reference),
        "trade_offs": [phrase(trade) for trade in trades if trade.point is point],
    }


def _origin(points: Sequence[Point]) -> dict[str, Any]:
    placed = [p for p in points if p.values["speed"] and p.values["size"]]
    if not placed:
        return {"origin": None, "speed_origin": _NAN, "size_origin": _NAN}
    first = min(placed, key=lambda p: (p.arm_hash != p.group.reference_hash, p.started_at, p.run_id, p.label))
    speed, size = first.values["speed"], first.values["size"]
    ends = (estimate.value if estimate else _NAN for estimate in (speed, size))
    return dict(zip(("origin", "speed_origin", "size_origin"), (first.label, *ends), strict=True))


def _row(standing: Standing, number: int) -> dict[str, Any]:
    point, group = standing.point, standing.point.group
    return {
        "group": number,
        **{k: getattr(group, k) for k in _OF_GROUP},
        "speed_metric": group.axes[0].parts[0],
        **{k: getattr(point, k) for k in _OF_POINT},
        "record": point.path,
        "status": standing.status,
        "dominated_by": [p.label for p in standing.dominated_by],
        "missing": [axis.name for axis in standing.missing],
        **_positions(standing),
        **{f"{axis.name}_margin": axis.margin for axis in group.axes},
    }


def _positions(standing: Standing) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, estimate in standing.point.values.items():
        ends = (_NAN,) * 3 if estimate is None else (estimate.value, estimate.low, estimate.high)
        found |= dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
    return found
