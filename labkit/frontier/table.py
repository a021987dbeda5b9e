"""Table: the judged points of every group as one frame, the form that pictures and notebooks take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from labkit.frontier.dominance import Standing, judge
from labkit.frontier.points import Group, points

if TYPE_CHECKING:
    import pandas

_OF_GROUP = (
    *("machine", "family", "workload", "workload_hash", "reference", "reference_hash"),
    *("windows", "windows_hash"),
)
_OF_POINT = (
    *("label", "short_label", "arm_hash", "plan_hash", "run_id", "experiment", "quiet"),
    *("code_hash", "packages_hash"),
)
COLUMNS = (
    *("group", *_OF_GROUP, "speed_metric", *_OF_POINT),
    *("status", "dominated_by", "missing"),
    *(f"{axis}{end}" for axis in ("speed", "quality", "size") for end in ("", "_low", "_high")),
)


def frontier_frame(latest: pandas.DataFrame, *, across_versions: bool = False) -> pandas.DataFrame:
    """From `labkit.store.query.frontier_points` to one judged row per point; see `standing_frame`."""
    return standing_frame(judge(points(latest, across_versions=across_versions)))


def standing_frame(standings: Sequence[Standing]) -> pandas.DataFrame:
    """One row per point with COLUMNS.

    group: the number of the group, from 0; only points of one group may be compared.
    status: `frontier`, `dominated` or `incomparable`. dominated_by: labels. missing: axis names.
    speed in tok/s, quality in nats (lower is better), size in bytes; NaN where unmeasured.
    """
    import pandas

    numbers: dict[Group, int] = {}
    for standing in standings:
        numbers.setdefault(standing.point.group, len(numbers))
    return pandas.DataFrame([_row(s, numbers[s.point.group]) for s in standings], columns=list(COLUMNS))


def _row(standing: Standing, number: int) -> dict[str, Any]:
    point, group = standing.point, standing.point.group
    return {
        "group": number,
        **{k: getattr(group, k) for k in _OF_GROUP},
        "speed_metric": group.axes[0].parts[0],
        **{k: getattr(point, k) for k in _OF_POINT},
        "status": standing.status,
        "dominated_by": [p.label for p in standing.dominated_by],
        "missing": [axis.name for axis in standing.missing],
        **_positions(standing),
    }


def _positions(standing: Standing) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, estimate in standing.point.values.items():
        ends = (float("nan"),) * 3 if estimate is None else (estimate.value, estimate.low, estimate.high)
        found |= dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
    return found
