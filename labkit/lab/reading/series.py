"""Series: the results of one arm in one metric over time, apart wherever they could not be compared.

Knows which records belong together and which count; not where their level changes (`history`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.core.errors import NoRecords, RecordInvalid
from labkit.core.metrics import METRICS, Metric
from labkit.store import query

Row = Mapping[str, Any]

_COLUMNS = (
    *("run_id", "machine", "kind", "state", "outcome", "quiet", "started_at", "experiment"),
    *("family", "role", "label", "arm_hash", "workload_hash"),
    *("workload", "value", "low", "high", "n"),
)
_QUERY = f"""
SELECT {", ".join(f"history.{name}" for name in _COLUMNS)}, runs.path, runs.windows_hash, arms.reference_hash
FROM history JOIN runs USING (run_id, machine) JOIN arms USING (run_id, machine, role)
WHERE history.metric = ?
ORDER BY history.started_at, history.run_id, history.machine, history.role
"""
_ALWAYS = ("machine", "family", "arm_hash", "workload_hash")
# A score is a distance from one reference on one text.
_SCORED = ("reference_hash", "windows_hash")
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which series are asked for. None: all. arm: a label, part of one, or the start of an arm's hash.

    workload: as `256+32`, or the start of its hash. machine: a machine class, or part of its name.
    everything: results of busy machines and of runs that were stopped count too. controls: runs of control.
    """

    arm: str | None = None
    experiment: str | None = None
    workload: str | None = None
    machine: str | None = None
    everything: bool = False
    controls: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """One record's value of the metric, with its 95% interval over n of that run's own visits or windows.

    left_out: why it does not count, or empty. path: of the record, below the lab.
    """

    run_id: str
    path: str
    role: str
    experiment: str
    started_at: str
    value: float
    low: float
    high: float
    n: int
    quiet: bool
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """Results of one arm in one metric on one machine class and workload, oldest first."""

    metric: str
    machine: str
    family: str
    label: str
    arm_hash: str
    workload: str
    workload_hash: str
    windows_hash: str
    results: tuple[Result, ...]

    @property
    def counted(self) -> tuple[Result, ...]:
        return tuple(result for result in self.results if not result.left_out)


def series(root: Path, metric: str, wanted: Wanted) -> tuple[Series, ...]:
    """The series of a metric that are wanted, by machine, workload and label.

    Raises RecordInvalid for an unknown metric, NoRecords with what there is where nothing fits.
    """
    if metric not in METRICS:
        raise RecordInvalid("the name of a metric was needed", got=metric, options=list(METRICS))
    rows = _rows(root, metric)
    rows = [row for row in rows if wanted.controls or row["kind"] != "control"]
    if not rows:
        step = "labkit run experiments/<file>.py"
        raise NoRecords(f"at least one record with {metric} was needed", got="none", next_step=step)
    for name in ("arm", "experiment", "workload", "machine"):
        rows = _only(rows, name, getattr(wanted, name))
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(_key(METRICS[metric], row), []).append(row)
    found = [_series(METRICS[metric], group, wanted) for group in groups.values()]
    return tuple(sorted(found, key=lambda each: (each.machine, each.workload, each.label)))


def _rows(root: Path, metric: str) -> list[Row]:
    frame = query.sql(root, _QUERY, [metric])
    frame = frame.astype(object).where(frame.notna(), None)
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]


def _key(metric: Metric, row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in (*_ALWAYS, *(_SCORED if metric.source == "score" else ())))


def _only(rows: Sequence[Row], name: str, text: str | None) -> list[Row]:
    """The rows that fit what was asked for; NoRecords with the names there are where none does."""
    if text is None:
        return list(rows)
    exact = [row for row in rows if text in _names(name, row)]
    found = exact or [row for row in rows if _fits(name, row, text)]
    if not found:
        options = sorted({_names(name, row)[0] for row in rows})[:_SHOWN]
        raise NoRecords(f"records of that {name} were needed", got=text, options=options)
    return found


def _names(name: str, row: Row) -> tuple[str, ...]:
    """What a row may be asked for by, the readable name first."""
    return {
        "arm": (row["label"], row["arm_hash"]),
        "experiment": (row["experiment"],),
        "workload": (_workload(row), row["workload_hash"]),
        "machine": (row["machine"],),
    }[name]


def _fits(name: str, row: Row, text: str) -> bool:
    readable, *hashes = _names(name, row)
    if text and any(value.startswith(text) for value in hashes):
        return True
    return name in ("arm", "machine") and bool(text) and text.lower() in readable.lower()


def _workload(row: Row) -> str:
    return row["workload"] or row["workload_hash"]


def _series(metric: Metric, rows: Sequence[Row], wanted: Wanted) -> Series:
    last = rows[-1]
    copied = ("machine", "family", "label", "arm_hash", "workload_hash")
    return Series(
        **{name: last[name] for name in copied},
        metric=metric.name,
        workload=_workload(last),
        windows_hash=last["windows_hash"] if metric.source == "score" else "",
        results=tuple(_result(metric, row, wanted) for row in _one_each(rows)),
    )


def _one_each(rows: Sequence[Row]) -> Iterable[Row]:
    """One row per run: where both its arms are the same, as in a control, that of the baseline."""
    found: dict[str, Row] = {}
    for row in rows:
        found.setdefault(row["run_id"], row)
    return found.values()


def _result(metric: Metric, row: Row, wanted: Wanted) -> Result:
    copied: dict[str, Any] = {
        name: row[name] for name in ("run_id", "path", "role", "experiment", "started_at")
    }
    return Result(
        **copied,
        value=float(row["value"]),
        low=float(row["low"]),
        high=float(row["high"]),
        n=int(row["n"]),
        quiet=row["quiet"] is True,
        left_out=_left_out(metric, row, wanted),
    )


def _left_out(metric: Metric, row: Row, wanted: Wanted) -> str:
    if metric.scale == "ratio" and row["value"] <= 0:
        return "not positive"
    if wanted.everything:
        return ""
    if row["state"] != "complete":
        return "stopped"
    return "" if row["quiet"] is True else "busy machine"
