"""Table: the judged points of every group as one frame, the form that pictures and notebooks take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from labkit.frontier.dominance import Standing, judge
from labkit.frontier.points import Group, points, short_label

if TYPE_CHECKING:
    import pandas

COLUMNS = (
    *("machine", "family", "workload", "workload_hash", "reference_hash", "reference", "speed_metric"),
    *("label", "short_label", "arm_hash", "run_id", "experiment", "quiet", "code_hash"),
    *("status", "dominated_by", "missing"),
    *(f"{axis}{end}" for axis in ("speed", "quality", "size") for end in ("", "_low", "_high")),
)


def frontier_frame(latest: pandas.DataFrame) -> pandas.DataFrame:
    """From `labkit.store.query.frontier_points` to one judged row per point; see `standing_frame`."""
    return standing_frame(judge(points(latest)))


def standing_frame(standings: Sequence[Standing]) -> pandas.DataFrame:
    """One row per point with COLUMNS.

    status: `frontier`, `dominated` or `incomparable`. dominated_by: labels. missing: axis names.
    speed in tok/s, quality in nats (lower is better), size in bytes; NaN where unmeasured.
    """
    import pandas

    labels: dict[Group, dict[str, str]] = {}
    for standing in standings:
        labels.setdefault(standing.point.group, {})[standing.point.arm_hash] = standing.point.label
    return pandas.DataFrame([_row(s, labels[s.point.group]) for s in standings], columns=list(COLUMNS))


def _row(standing: Standing, labels: dict[str, str]) -> dict[str, Any]:
    point, group = standing.point, standing.point.group
    return {
        **{
            k: getattr(group, k) for k in ("machine", "family", "workload", "workload_hash", "reference_hash")
        },
        "reference": labels.get(group.reference_hash, group.reference_hash),
        "speed_metric": group.axes[0].parts[0],
        **{k: getattr(point, k) for k in ("label", "arm_hash", "run_id", "experiment", "quiet", "code_hash")},
        "short_label": short_label(point.label, labels.values()),
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
