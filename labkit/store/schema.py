"""The DuckDB index as data: its tables, and its views as SQL. Knows no files and opens no connection."""

from __future__ import annotations

from collections.abc import Mapping

from labkit.core.metrics import METRICS

INDEX_VERSION = 2

TABLES: Mapping[str, Mapping[str, str]] = {
    "index_info": {"version": "BIGINT"},
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
    "runs": {
        "run_id": "VARCHAR",
        "machine": "VARCHAR",
        "path": "VARCHAR",
        "state": "VARCHAR",
        "outcome": "VARCHAR",
        "started_at": "VARCHAR",
        "ended_at": "VARCHAR",
        "quiet": "BOOLEAN",
        "experiment": "VARCHAR",
        "statement": "VARCHAR",
        "improves": "VARCHAR[]",
        "holds": "VARCHAR[]",
        "expires": "VARCHAR",
        "source_hash": "VARCHAR",
        "workload_hash": "VARCHAR",
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
    },
    "arms": {
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
        "family": "VARCHAR",
        "fingerprint": "VARCHAR",
        "dtype": "VARCHAR",
        "parameters": "BIGINT",
    },
    "arm_metrics": {
        "run_id": "VARCHAR",
        "machine": "VARCHAR",
        "role": "VARCHAR",
        "metric": "VARCHAR",
        "value": "DOUBLE",
        "low": "DOUBLE",
        "high": "DOUBLE",
        "n": "BIGINT",
        "unit": "VARCHAR",
    },
    "verdicts": {
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
    },
    "visit_runs": {
        "run_id": "VARCHAR",
        "machine": "VARCHAR",
        "visit": "BIGINT",
        "pair": "BIGINT",
        "role": "VARCHAR",
        "status": "VARCHAR",
        "started_s": "DOUBLE",
        "tokens_hash": "VARCHAR",
        "error": "VARCHAR",
    },
    "visit_metrics": {
        "run_id": "VARCHAR",
        "machine": "VARCHAR",
        "visit": "BIGINT",
        "metric": "VARCHAR",
        "value": "DOUBLE",
    },
}


def _wide(value: str, name: str) -> str:
    """One output column per metric of the vocabulary, from a long table aliased m."""
    return ", ".join(f"max(m.{value}) FILTER (m.metric = '{k}') AS {k}{name}" for k in METRICS)


RESULTS = f"""
CREATE VIEW results AS
WITH wide AS (
    SELECT m.run_id, m.machine, m.role, {_wide("value", "")}, {_wide("low", "_low")},
           {_wide("high", "_high")}, {_wide("n", "_n")}
    FROM arm_metrics m GROUP BY ALL)
SELECT runs.*, arms.* EXCLUDE (run_id, machine), wide.* EXCLUDE (run_id, machine, role)
FROM runs JOIN arms USING (run_id, machine) LEFT JOIN wide USING (run_id, machine, role)
ORDER BY started_at, run_id, role
"""

AXES = """
CREATE VIEW axes AS
SELECT runs.run_id, runs.machine, started_at, experiment, statement, outcome, state, quiet, backend, chip,
       prompt_tokens, new_tokens, concurrency,
       verdicts.* EXCLUDE (run_id, machine), title, metric_unit, better
FROM runs JOIN verdicts USING (run_id, machine) LEFT JOIN metrics USING (metric)
ORDER BY started_at, run_id, position
"""

VISITS = f"""
CREATE VIEW visits AS
WITH wide AS (
    SELECT m.run_id, m.machine, m.visit, {_wide("value", "")} FROM visit_metrics m GROUP BY ALL)
SELECT runs.started_at, runs.experiment, visit_runs.*, wide.* EXCLUDE (run_id, machine, visit)
FROM runs JOIN visit_runs USING (run_id, machine) LEFT JOIN wide USING (run_id, machine, visit)
ORDER BY started_at, run_id, visit
"""

# The ratio is an improvement: above 1 the candidate is better in the metric's good direction.
PAIRS = """
CREATE VIEW pairs AS
WITH side AS (
    SELECT run_id, machine, pair, role, metric, value
    FROM visit_runs JOIN visit_metrics USING (run_id, machine, visit) WHERE status = 'ok')
SELECT b.run_id, b.machine, b.pair, b.metric, b.value AS baseline, c.value AS candidate,
       CASE better WHEN 'higher' THEN c.value / nullif(b.value, 0)
                   ELSE b.value / nullif(c.value, 0) END AS ratio
FROM side b JOIN side c USING (run_id, machine, pair, metric) JOIN metrics USING (metric)
WHERE b.role = 'baseline' AND c.role = 'candidate' AND metric_scale = 'ratio'
ORDER BY b.run_id, b.metric, b.pair
"""

# Text of the split `tune` has been looked at while tuning, so that its scores prove nothing.
TUNED = """
CREATE VIEW tuned AS
SELECT * FROM runs
WHERE state = 'complete' AND outcome <> 'failed' AND split = 'tune' AND windows_hash <> ''
ORDER BY started_at, run_id
"""

_GROUP = "machine, family, workload_hash, reference_hash, windows_hash, packages_hash, code_hash"

# Of every arm and plan in a group one complete record speaks: a quiet one if there is one, then the newest.
LATEST = f"""
CREATE VIEW latest AS
SELECT *, max(started_at) OVER (PARTITION BY {_GROUP}) AS group_newest_at
FROM results ANTI JOIN tuned USING (run_id, machine)
WHERE state = 'complete' AND outcome <> 'failed'
QUALIFY row_number() OVER (
    PARTITION BY {_GROUP}, arm_hash, plan_hash
    ORDER BY (quiet IS TRUE) DESC, started_at DESC, run_id DESC, role) = 1
ORDER BY {_GROUP}, label, arm_hash, plan_hash
"""

VIEWS: tuple[str, ...] = (RESULTS, AXES, VISITS, PAIRS, TUNED, LATEST)


def statements() -> tuple[str, ...]:
    """The CREATE statements of every table and view, in order."""
    tables = (
        f"CREATE TABLE {name} ({', '.join(f'{c} {t}' for c, t in columns.items())})"
        for name, columns in TABLES.items()
    )
    return (*tables, *VIEWS)
