"""Rows: one record flattened into the tables of the index, with every value brought to its column's type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from labkit.core.canonical import digest
from labkit.core.errors import RecordInvalid
from labkit.core.metrics import METRICS
from labkit.core.records import ArmResult, Record, VisitResult
from labkit.store.schema import TABLES

Row = dict[str, Any]
Tables = dict[str, list[Row]]

_CASTS: Mapping[str, Callable[[Any], Any]] = {
    "VARCHAR": str,
    "BIGINT": int,
    "DOUBLE": float,
    "BOOLEAN": bool,
    "VARCHAR[]": lambda items: [str(item) for item in items],
}


def record_rows(record: Record, path: str) -> Tables:
    """The rows of one record by table name. Raise RecordInvalid where a value has not its column's type."""
    try:
        raw = {
            "runs": [_run(record, path)],
            "arms": [_arm(a) for a in record.arms],
            "arm_metrics": [row for a in record.arms for row in _arm_metrics(a)],
            "verdicts": [{"position": i, **asdict(a)} for i, a in enumerate(record.axes)],
            "visit_runs": [{"visit": v.index, **asdict(v)} for v in record.visits],
            "visit_metrics": [row for v in record.visits for row in _visit_metrics(v)],
        }
        key = {"run_id": record.run_id, "machine": record.machine["slug"]}
        return {name: [cast_row(name, {**row, **key}) for row in rows] for name, rows in raw.items()}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        got = f"{type(error).__name__}: {error}"
        raise RecordInvalid("a record with values of the right types was needed", got=got) from error


def metric_rows() -> list[Row]:
    """The vocabulary of metrics as rows of the table `metrics`."""
    return [
        {**asdict(m), "metric": m.name, "metric_unit": m.unit, "metric_scale": m.scale}
        for m in METRICS.values()
    ]


def cast_row(table: str, row: Row) -> Row:
    """The columns of `table` taken from a row; None and absent values stay None (NULL)."""
    return {c: None if row.get(c) is None else _CASTS[t](row[c]) for c, t in TABLES[table].items()}


def _run(record: Record, path: str) -> Row:
    experiment, machine = record.experiment, record.machine
    return {
        **experiment.get("workload", {}),
        **{k: machine.get(k) for k in ("backend", "chip", "cores", "memory_gib", "os")},
        **{k: record.provenance.get(k) for k in ("labkit_version", "code_hash", "git_revision", "git_dirty")},
        **{k: experiment.get(k) for k in ("statement", "expires", "source_hash")},
        **{k: getattr(record, k) for k in ("state", "outcome", "started_at", "ended_at", "workload_hash")},
        **_scored(record),
        "packages_hash": digest(record.provenance.get("packages") or {}),
        "machine_blas": machine.get("blas"),
        "path": path,
        "experiment": experiment["name"],
        "improves": sorted(experiment.get("improves", {})),
        "holds": sorted(experiment.get("holds", {})),
        "quiet": record.quiet.get("quiet"),
    }


def _scored(record: Record) -> Row:
    """What quality was scored on; an empty windows_hash where it was not."""
    score = record.experiment.get("score") or {}
    hashes = {k: record.provenance.get(k) or "" for k in ("text_hash", "windows_hash")}
    return {**hashes, **{k: score.get(k) for k in ("split", "windows", "window_tokens")}}


def _arm(arm: ArmResult) -> Row:
    named = {k: getattr(arm, k) for k in ("role", "label", "arm_hash", "plan_hash", "reference_hash")}
    artifact = {k: arm.artifact.get(k) for k in ("fingerprint", "dtype", "parameters")}
    configured = {k: arm.arm.get(k) for k in ("model", "kv", "blas")}
    family = arm.artifact.get("family") or arm.arm["model"]
    return {**named, **artifact, **configured, "family": family}


def _arm_metrics(arm: ArmResult) -> list[Row]:
    """The estimates, and beside them what was counted exactly on the artifact."""
    rows = [{"role": arm.role, "metric": k, **asdict(e)} for k, e in arm.metrics.items()]
    for name in ("artifact_bytes", "effective_bpw"):
        value = arm.artifact.get(name)
        if value is not None and name not in arm.metrics:
            exact = {"value": value, "low": value, "high": value, "n": 1, "unit": "artifact"}
            rows.append({"role": arm.role, "metric": name, **exact})
    return rows


def _visit_metrics(visit: VisitResult) -> list[Row]:
    return [{"visit": visit.index, "metric": name, "value": value} for name, value in visit.metrics.items()]
