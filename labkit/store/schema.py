"""The tables of the DuckDB index as data. Knows no files, no views and opens no connection.

The metrics of an arm and of a visit are columns, so that no question turns millions of rows into columns.
"""

from __future__ import annotations

from collections.abc import Mapping

from labkit.core.metrics import METRICS

INDEX_VERSION = 6

ESTIMATE_PARTS: Mapping[str, str] = {"value": "", "low": "_low", "high": "_high", "n": "_n", "unit": "_unit"}
_PART_TYPES = {"value": "DOUBLE", "low": "DOUBLE", "high": "DOUBLE", "n": "BIGINT", "unit": "VARCHAR"}

_RUN = {
    "run_id": "VARCHAR",
    "machine": "VARCHAR",
    "path": "VARCHAR",
    "kind": "VARCHAR",
    "state": "VARCHAR",
    "outcome": "VARCHAR",
    "started_at": "VARCHAR",
    "ended_at": "VARCHAR",
    "quiet": "BOOLEAN",
    "journal_id": "VARCHAR",
    "resumptions": "BIGINT",
    "experiment": "VARCHAR",
    "statement": "VARCHAR",
    "improves": "VARCHAR[]",
    "holds": "VARCHAR[]",
    "expires": "VARCHAR",
    "design": "VARCHAR",
    "looks_planned": "BIGINT",
    "looks_taken": "BIGINT",
    "floor_run_id": "VARCHAR",
    "source_hash": "VARCHAR",
    "workload_hash": "VARCHAR",
    "workload": "VARCHAR",
    "prompt_tokens": "BIGINT",
    "new_tokens": "BIGINT",
    "concurrency": "BIGINT",
    "backend": "VARCHAR",
    "chip": "VARCHAR",
    "cores": "BIGINT",
    "memory_gib": "DOUBLE",
    "os": "VARCHAR",
    "machine_blas": "VARCHAR",
    "labkit_version": "VARCHAR",
    "code_hash": "VARCHAR",
    "git_revision": "VARCHAR",
    "git_dirty": "BOOLEAN",
    "packages_hash": "VARCHAR",
    "text_hash": "VARCHAR",
    "windows_hash": "VARCHAR",
    "split": "VARCHAR",
    "windows": "BIGINT",
    "window_tokens": "BIGINT",
}

_ARM = {
    "run_id": "VARCHAR",
    "machine": "VARCHAR",
    "role": "VARCHAR",
    "label": "VARCHAR",
    "arm_hash": "VARCHAR",
    "plan_hash": "VARCHAR",
    "reference_hash": "VARCHAR",
    "model": "VARCHAR",
    "kv": "VARCHAR",
    "blas": "VARCHAR",
    "method": "VARCHAR",
    "family": "VARCHAR",
    "fingerprint": "VARCHAR",
    "dtype": "VARCHAR",
    "parameters": "BIGINT",
}

_VERDICT = {
    "run_id": "VARCHAR",
    "machine": "VARCHAR",
    "position": "BIGINT",
    "metric": "VARCHAR",
    "goal": "VARCHAR",
    "margin": "DOUBLE",
    "scale": "VARCHAR",
    "estimate": "DOUBLE",
    "low": "DOUBLE",
    "high": "DOUBLE",
    "n": "BIGINT",
    "unit": "VARCHAR",
    "p_value": "DOUBLE",
    "p_holm": "DOUBLE",
    "verdict": "VARCHAR",
    "notes": "VARCHAR[]",
    "alpha": "DOUBLE",
    "floor": "DOUBLE",
}

_VISIT = {
    "run_id": "VARCHAR",
    "machine": "VARCHAR",
    "visit": "BIGINT",
    "pair": "BIGINT",
    "role": "VARCHAR",
    "status": "VARCHAR",
    "started_s": "DOUBLE",
    "tokens_hash": "VARCHAR",
    "error": "VARCHAR",
}

# What a record tells in tables whose fields are not labkit's to fix, as JSON text: views take it apart when
# they are asked, so that an index is made no slower by it. No row where a record tells none of it.
_DETAIL = {
    "run_id": "VARCHAR",
    "machine": "VARCHAR",
    "looks": "VARCHAR",
    "noise": "VARCHAR",
    "prediction": "VARCHAR",
}

# `other_metrics` keeps, as JSON text, what a record measured and this version of labkit has no name for.
RECORD_TABLES: Mapping[str, Mapping[str, str]] = {
    "runs": _RUN,
    "arms": {
        **_ARM,
        **{f"{m}{suffix}": _PART_TYPES[part] for part, suffix in ESTIMATE_PARTS.items() for m in METRICS},
        "other_metrics": "VARCHAR",
    },
    "verdicts": _VERDICT,
    "visit_runs": {**_VISIT, **dict.fromkeys(METRICS, "DOUBLE"), "other_metrics": "VARCHAR"},
    "details": _DETAIL,
}

TABLES: Mapping[str, Mapping[str, str]] = {
    "index_info": {"version": "BIGINT", "schema_hash": "VARCHAR"},
    "files": {"path": "VARCHAR", "bytes": "BIGINT", "mtime_ns": "BIGINT"},
    "damaged": {"path": "VARCHAR", "reason": "VARCHAR"},
    "metrics": {
        "metric": "VARCHAR",
        "title": "VARCHAR",
        "metric_unit": "VARCHAR",
        "better": "VARCHAR",
        "axis": "VARCHAR",
        "metric_scale": "VARCHAR",
    },
    **RECORD_TABLES,
    "decisions": {
        "kind": "VARCHAR",
        "name": "VARCHAR",
        "decided_at": "VARCHAR",
        "why": "VARCHAR",
        "outcome": "VARCHAR",
        "evidence": "VARCHAR[]",
    },
}


def create_tables() -> tuple[str, ...]:
    """The CREATE statements of every table."""
    return tuple(
        f"CREATE TABLE {name} ({', '.join(f'{c} {t}' for c, t in columns.items())})"
        for name, columns in TABLES.items()
    )
