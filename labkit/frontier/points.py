"""Points: results as positions on the axes speed, quality and size, within groups that may be compared.

Knows which metric stands for an axis; not who dominates whom, nor where results come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from labkit.core.arm import Workload
from labkit.core.metrics import METRICS
from labkit.core.records import Estimate

if TYPE_CHECKING:
    import pandas

AxisName = Literal["speed", "quality", "size"]
Row = Mapping[str, Any]

_PREFILL = frozenset({"prefill_tps", "ttft_s"})
# Another BLAS's rounding moves log-probabilities by up to 1e-4; the KL of that is no quality.
_KL_RESOLUTION = 1e-5
_DECODE = frozenset({"decode_tps", "itl_p50_s", "itl_p95_s", "itl_p99_s"})


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of the frontier. parts: the metrics whose sum is the position; better: the good way.

    resolution: a difference up to this, in the axis's unit, is no difference.
    """

    name: AxisName
    title: str
    unit: str
    better: Literal["higher", "lower"]
    parts: tuple[str, ...]
    resolution: float = 0.0


@dataclass(frozen=True, slots=True)
class Group:
    """Points that may be compared: one machine, model family, workload and quality reference."""

    machine: str
    family: str
    workload: str
    workload_hash: str
    reference_hash: str
    axes: tuple[Axis, Axis, Axis]


@dataclass(frozen=True, slots=True)
class Point:
    """One arm's position, from its latest complete record. values: axis name -> estimate, None unmeasured."""

    group: Group
    arm_hash: str
    label: str
    run_id: str
    experiment: str
    quiet: bool | None
    code_hash: str | None
    values: Mapping[AxisName, Estimate | None]

    def missing(self) -> tuple[Axis, ...]:
        """The axes on which nothing was measured."""
        return tuple(axis for axis in self.group.axes if self.values[axis.name] is None)


def points(frame: pandas.DataFrame) -> tuple[Point, ...]:
    """Points of a frame with one row per arm and group, as `labkit.store.query.frontier_points` gives it."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    together: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        key = (row["machine"], row["family"], row["workload_hash"], row["reference_hash"])
        together.setdefault(key, []).append({str(k): v for k, v in row.items()})
    return tuple(p for rows in together.values() for p in _group_points(rows))


def speed_metric(experiments: Sequence[tuple[Sequence[str], Sequence[str]]]) -> str:
    """The metric of the speed axis, given what each experiment improves and holds.

    `prefill_tps` where every claim about speed is about prefill, else `decode_tps`. What is to be improved
    decides; what is only held counts where no experiment improves a speed.
    """
    improved = {name for improves, _ in experiments for name in improves}
    held = {name for _, holds in experiments for name in holds}
    for named in (improved, held):
        if named & (_PREFILL | _DECODE):
            return "decode_tps" if named & _DECODE else "prefill_tps"
    return "decode_tps"


def short_label(label: str, beside: Iterable[str]) -> str:
    """An arm's label without its first word, the model, where every label beside it starts with the same."""
    rest = label.partition(" ")[2]
    return rest if rest and len({other.partition(" ")[0] for other in beside}) == 1 else label


def axes_for(speed: str) -> tuple[Axis, Axis, Axis]:
    """The default axes: one speed, KL to the reference, and all bytes held (artifact and KV cache)."""
    return (
        _axis("speed", METRICS[speed].title, (speed,)),
        _axis("quality", METRICS["kl_mean_nats"].title, ("kl_mean_nats",), _KL_RESOLUTION),
        _axis("size", "bytes held", ("artifact_bytes", "kv_bytes")),
    )


def _axis(name: AxisName, title: str, parts: tuple[str, ...], resolution: float = 0.0) -> Axis:
    metric = METRICS[parts[0]]
    return Axis(name, title, metric.unit, metric.better, parts, resolution)


def _group_points(rows: Sequence[Row]) -> list[Point]:
    first = rows[0]
    group = Group(
        machine=first["machine"],
        family=first["family"],
        workload=_workload_label(first),
        workload_hash=first["workload_hash"],
        reference_hash=first["reference_hash"],
        axes=axes_for(speed_metric([(list(r["improves"]), list(r["holds"])) for r in rows])),
    )
    return [_point(group, row) for row in rows]


def _point(group: Group, row: Row) -> Point:
    return Point(
        group=group,
        arm_hash=row["arm_hash"],
        label=row["label"],
        run_id=row["run_id"],
        experiment=row["experiment"],
        quiet=row["quiet"],
        code_hash=row["code_hash"],
        values={axis.name: _position(axis, row) for axis in group.axes},
    )


def _position(axis: Axis, row: Row) -> Estimate | None:
    """The sum over the axis's parts; intervals add up end to end, which is wider than they need be."""
    parts = [_estimate(name, row) for name in axis.parts]
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


def _workload_label(row: Row) -> str:
    sizes = [row.get(name) for name in ("prompt_tokens", "new_tokens", "concurrency")]
    if any(size is None for size in sizes[:2]):
        return row["workload_hash"]
    return Workload(int(sizes[0] or 0), int(sizes[1] or 0), int(sizes[2] or 1)).label()
