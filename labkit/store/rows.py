"""Rows: one record flattened into the tables of the index, with every value of its column's type."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any

from labkit.core.canonical import canonical_json, digest
from labkit.core.errors import RecordInvalid
from labkit.core.metrics import METRICS
from labkit.core.records import ArmResult, Estimate, Record, VisitResult
from labkit.core.workload import Workload
from labkit.store.schema import ESTIMATE_PARTS, TABLES

Row = tuple[Any, ...]
Rows = dict[str, list[Row]]
_INT64 = 2**63
UNFIT = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


def record_rows(record: Record, path: str) -> Rows:
    """The rows of one record by table name, in the order of the columns.

    Raise RecordInvalid where a value has not its column's type, or is a number that is not finite.
    """
    try:
        raw = raw_rows(record, path)
        return {name: [_checked(name, row) for row in rows] for name, rows in raw.items()}
    except UNFIT as error:
        got = f"{type(error).__name__}: {error}"
        raise RecordInvalid("a record with values of the right types was needed", got=got) from error


def raw_rows(record: Record, path: str) -> Rows:
    """The same rows with their values as the record has them. Raise one of UNFIT where one is misshapen."""
    key = (record.run_id, record.machine["slug"])
    return {
        "runs": [(*key, path, *_run(record))],
        "arms": [(*key, *_arm(arm)) for arm in record.arms],
        "verdicts": [(*key, position, *_VERDICT(axis)) for position, axis in enumerate(record.axes)],
        "visit_runs": [(*key, *_visit(visit)) for visit in record.visits],
        "details": _details(record, key),
    }


def metric_rows() -> list[Row]:
    """The vocabulary of metrics as rows of the table `metrics`."""
    return [(m.name, m.title, m.unit, m.better, m.axis, m.scale) for m in METRICS.values()]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"text was needed, got {value!r}")


def _whole(value: Any) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if (whole or (isinstance(value, float) and value.is_integer())) and -_INT64 <= value < _INT64:
        return int(value)
    raise TypeError(f"a whole number of 64 bits was needed, got {value!r}")


def _number(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise TypeError(f"a finite number was needed, got {value!r}")


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise TypeError(f"true or false was needed, got {value!r}")


def _texts(value: Any) -> list[str]:
    if isinstance(value, list | tuple):
        return [_text(item) for item in value]
    raise TypeError(f"a list of texts was needed, got {value!r}")


Check = Callable[[Any], Any]
_CHECKS: Mapping[str, tuple[type, Check]] = {
    "VARCHAR": (str, _text),
    "BIGINT": (object, _whole),
    "DOUBLE": (object, _number),
    "BOOLEAN": (bool, _truth),
    "VARCHAR[]": (object, _texts),
}
_COLUMNS: Mapping[str, tuple[tuple[str, type, Check], ...]] = {
    table: tuple((c, _CHECKS[t][0], _CHECKS[t][1]) for c, t in columns.items())
    for table, columns in TABLES.items()
}


def _checked(table: str, row: Row) -> Row:
    """The row with every value of its column's type; None stays None (NULL)."""
    return tuple(
        value if value is None or type(value) is exact else _value(table, column, check, value)
        for value, (column, exact, check) in zip(row, _COLUMNS[table], strict=True)
    )


def _value(table: str, column: str, check: Check, value: Any) -> Any:
    try:
        return check(value)
    except (TypeError, OverflowError) as error:
        raise TypeError(f"{table}.{column}: {error}") from error


def _columns_after(table: str, first: str) -> tuple[str, ...]:
    names = tuple(TABLES[table])
    return names[names.index(first) :]


_RUN_COLUMNS = _columns_after("runs", "kind")
_OF_RECORD = ("kind", "state", "outcome", "started_at", "ended_at", "workload_hash", "journal_id")


def _run(record: Record) -> Iterable[Any]:
    experiment, machine = record.experiment, record.machine
    found = {
        **experiment.get("workload", {}),
        **{k: machine.get(k) for k in ("backend", "chip", "cores", "memory_gib", "os")},
        **{k: record.provenance.get(k) for k in ("labkit_version", "code_hash", "git_revision", "git_dirty")},
        **{k: experiment.get(k) for k in ("statement", "expires", "design", "source_hash")},
        **{k: getattr(record, k) for k in _OF_RECORD},
        **_scored(record),
        "workload": _workload(experiment.get("workload", {})),
        "packages_hash": digest(record.provenance.get("packages") or {}),
        "machine_blas": machine.get("blas"),
        "experiment": experiment["name"],
        "improves": sorted(experiment.get("improves", {})),
        "holds": sorted(experiment.get("holds", {})),
        "quiet": record.quiet.get("quiet"),
        "resumptions": len(record.resumed),
        "looks_planned": experiment.get("looks"),
        "looks_taken": len(record.looks),
        "floor_run_id": record.floor.get("run_id"),
    }
    return (found.get(column) for column in _RUN_COLUMNS)


def _workload(data: Mapping[str, Any]) -> str | None:
    """Its label; None of one that another version of labkit states otherwise."""
    try:
        return Workload(**data).label()
    except (TypeError, ValueError, AttributeError):
        return None


def _scored(record: Record) -> dict[str, Any]:
    """What quality was scored on; an empty windows_hash where it was not."""
    score = record.experiment.get("score") or {}
    hashes = {k: record.provenance.get(k) or "" for k in ("text_hash", "windows_hash")}
    return {**hashes, **{k: score.get(k) for k in ("split", "windows", "window_tokens")}}


def _arm(arm: ArmResult) -> Iterable[Any]:
    artifact, configured = arm.artifact, arm.arm
    metrics = {**_counted(artifact), **arm.metrics}
    return (
        *(arm.role, arm.label, arm.arm_hash, arm.plan_hash, arm.reference_hash),
        *(configured.get(name) for name in ("model", "kv", "blas", "method")),
        artifact.get("family") or configured["model"],
        *(artifact.get(name) for name in ("fingerprint", "dtype", "parameters")),
        *_parts([metrics.get(name) for name in METRICS]),
        _others({name: asdict(e) for name, e in metrics.items() if name not in METRICS}),
    )


def _parts(estimates: Sequence[Estimate | None]) -> Iterable[Any]:
    """The value of every estimate, then every low end, and so on through ESTIMATE_PARTS."""
    for part in ESTIMATE_PARTS:
        yield from [None if estimate is None else getattr(estimate, part) for estimate in estimates]


def _counted(artifact: Mapping[str, Any]) -> dict[str, Estimate]:
    """What was counted exactly on the artifact."""
    counted = ((name, artifact.get(name)) for name in ("artifact_bytes", "effective_bpw"))
    return {name: Estimate(v, v, v, 1, "artifact") for name, v in counted if v is not None}


def _details(record: Record, key: tuple[str, str]) -> list[Row]:
    """Looks, noise and predictions as JSON text. Raise TypeError where noise or a prediction is no table."""
    if not (record.looks or record.noise or record.prediction):
        return []
    for name, told in (("noise", record.noise), ("prediction", record.prediction)):
        if not isinstance(told, dict):
            raise TypeError(f"{name}: a table was needed, got {told!r}")
    return [(*key, *map(canonical_json, (record.looks, record.noise, record.prediction)))]


_VERDICT = attrgetter(*_columns_after("verdicts", "metric"))
_VISIT = attrgetter("index", "pair", "role", "status", "started_s", "tokens_hash", "error")


def _visit(visit: VisitResult) -> Iterable[Any]:
    metrics = visit.metrics
    known = metrics.keys() <= METRICS.keys()
    others = None if known else _others({name: v for name, v in metrics.items() if name not in METRICS})
    return (*_VISIT(visit), *map(metrics.get, METRICS), others)


def _others(metrics: Mapping[str, Any]) -> str | None:
    return canonical_json(metrics) if metrics else None
