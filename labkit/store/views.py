"""The views of the index as SQL over its tables. Opens no connection; the frontier, no SQL, is `lab`'s.

The tables hold every record; the views of results leave out those that `superseded` lists.
"""

from __future__ import annotations

from collections.abc import Mapping

from labkit.core.canonical import digest
from labkit.core.metrics import METRICS
from labkit.store.schema import INDEX_VERSION, TABLES, create_tables

_ESTIMATES = ", ".join(f"{m}{end}" for end in ("", "_low", "_high", "_n") for m in METRICS)
_ARM_COLUMNS = ", ".join(
    column
    for column in list(TABLES["arms"])[: list(TABLES["arms"]).index(next(iter(METRICS)))]
    if column not in {"run_id", "machine"}
)


# A run that stopped and was gone on with has a partial record for each stop: the last record holds them all.
SUPERSEDED = """
SELECT stopped.run_id, stopped.machine, stopped.journal_id,
       first(later.run_id ORDER BY later.state = 'complete' DESC, later.resumptions DESC) AS superseded_by
FROM runs AS stopped JOIN runs AS later USING (machine, journal_id)
WHERE stopped.state = 'partial' AND stopped.journal_id <> ''
  AND (later.state = 'complete' OR later.resumptions > stopped.resumptions)
GROUP BY ALL
ORDER BY ALL
"""

_COUNTED_RUNS, _COUNTED_ARMS, _COUNTED_VISITS = (
    f"(SELECT * FROM {table} ANTI JOIN superseded USING (run_id, machine)) AS {table}"
    for table in ("runs", "arms", "visit_runs")
)


def _long(fields: Mapping[str, str], only: frozenset[str] = frozenset(METRICS)) -> str:
    """A list with a struct per metric: field -> expression in which `{m}` is the metric's name."""
    structs = (
        "{'metric': '"
        + m
        + "', "
        + ", ".join(f"'{name}': {expression.format(m=m)}" for name, expression in fields.items())
        + "}"
        for m in METRICS
        if m in only
    )
    return f"[{', '.join(structs)}]"


ARM_METRICS = f"""
SELECT run_id, machine, role, each.metric, each.value, each.low, each.high, each.n, each.unit
FROM (SELECT run_id, machine, role, unnest({
    _long({"value": "{m}", "low": "{m}_low", "high": "{m}_high", "n": "{m}_n", "unit": "{m}_unit"})
}) AS each FROM {_COUNTED_ARMS})
WHERE each.value IS NOT NULL
"""

VISIT_METRICS = f"""
SELECT run_id, machine, visit, each.metric, each.value
FROM (SELECT run_id, machine, visit, unnest({_long({"value": "{m}"})}) AS each FROM {_COUNTED_VISITS})
WHERE each.value IS NOT NULL
"""

RESULTS = f"""
SELECT runs.*, {_ARM_COLUMNS}, {_ESTIMATES}
FROM {_COUNTED_RUNS} JOIN arms USING (run_id, machine)
ORDER BY started_at, run_id, machine, role
"""

# look_pairs: after how many pairs each look was taken.
AXES = f"""
SELECT runs.run_id, runs.machine, started_at, experiment, statement, outcome, state, quiet, backend, chip,
       workload, prompt_tokens, new_tokens, concurrency, kind, design, looks_planned, looks_taken,
       floor_run_id,
       TRY_CAST(json_extract(details.looks, '$[*].pairs') AS BIGINT[]) AS look_pairs,
       verdicts.* EXCLUDE (run_id, machine), title, metric_unit, better
FROM {_COUNTED_RUNS} JOIN verdicts USING (run_id, machine) LEFT JOIN metrics USING (metric)
LEFT JOIN details USING (run_id, machine)
ORDER BY started_at, run_id, machine, position
"""

VISITS = f"""
SELECT runs.started_at, runs.experiment, runs.kind, runs.state, visit_runs.* EXCLUDE (other_metrics)
FROM {_COUNTED_RUNS} JOIN visit_runs USING (run_id, machine)
ORDER BY started_at, run_id, machine, visit
"""

_RATIOS = frozenset(name for name, metric in METRICS.items() if metric.scale == "ratio")

# The ratio is an improvement: above 1 the candidate is better in the metric's good direction.
PAIRS = f"""
SELECT run_id, machine, state, pair, metric, baseline, candidate,
       CASE better WHEN 'higher' THEN candidate / nullif(baseline, 0)
                   ELSE baseline / nullif(candidate, 0) END AS ratio
FROM (
    SELECT run_id, machine, pair, each.metric, each.baseline, each.candidate
    FROM (
        SELECT b.run_id, b.machine, b.pair,
               unnest({_long({"baseline": "b.{m}", "candidate": "c.{m}"}, _RATIOS)}) AS each
        FROM visit_runs b JOIN visit_runs c USING (run_id, machine, pair)
        WHERE b.role = 'baseline' AND c.role = 'candidate' AND b.status = 'ok' AND c.status = 'ok')
    WHERE each.baseline IS NOT NULL AND each.candidate IS NOT NULL)
JOIN {_COUNTED_RUNS} USING (run_id, machine) JOIN metrics USING (metric)
ORDER BY run_id, machine, metric, pair
"""

# Text of the split `tune` has been looked at while tuning, so that its scores prove nothing.
TUNED = """
SELECT * FROM runs
WHERE kind <> 'control' AND state = 'complete' AND outcome <> 'failed'
  AND split = 'tune' AND windows_hash <> ''
ORDER BY started_at, run_id, machine
"""

GROUP = "machine, family, workload_hash, reference_hash, windows_hash, packages_hash, code_hash"

# What may be a point. A control is of arms that are equal, or slowed on purpose, and so is none.
MAY_BE_POINT = """kind <> 'control' AND state = 'complete' AND outcome <> 'failed'
      AND (split = 'tune' AND windows_hash <> '') IS NOT TRUE"""

# Of every arm and plan in a group one complete record speaks: a quiet one if there is one, then the newest.
# The ranking sees the few columns that decide it; the wide ones are joined to its winners.
LATEST = f"""
WITH ranked AS (
    SELECT run_id, machine, role, max(started_at) OVER (PARTITION BY {GROUP}) AS group_newest_at,
           row_number() OVER (
               PARTITION BY {GROUP}, arm_hash, plan_hash
               ORDER BY (quiet IS TRUE) DESC, started_at DESC, run_id DESC, role) AS place
    FROM runs JOIN arms USING (run_id, machine)
    WHERE {MAY_BE_POINT})
SELECT runs.*, {_ARM_COLUMNS}, {_ESTIMATES}, group_newest_at
FROM (SELECT * FROM ranked WHERE place = 1)
JOIN runs USING (run_id, machine) JOIN arms USING (run_id, machine, role)
ORDER BY {GROUP}, label, arm_hash, plan_hash
"""

_SERIES = "machine, family, workload_hash, kind, design, experiment, role, arm_hash, metric"

HISTORY = f"""
SELECT started_at, run_id, machine, kind, design, family, fingerprint, experiment, workload_hash,
       workload, prompt_tokens, new_tokens, concurrency, role, label, arm_hash, plan_hash, code_hash,
       git_revision, packages_hash, state, outcome, quiet, metric, title, metric_unit, better, value, low,
       high, n, unit,
       lag(value) OVER series AS previous, value / nullif(lag(value) OVER series, 0) AS ratio
FROM arm_metrics JOIN arms USING (run_id, machine, role) JOIN runs USING (run_id, machine)
JOIN metrics USING (metric)
WINDOW series AS (PARTITION BY {_SERIES} ORDER BY started_at, run_id)
ORDER BY started_at, run_id, machine, role, metric
"""

_COUNTED_DETAILS = "(SELECT * FROM details ANTI JOIN superseded USING (run_id, machine))"

LOOKS = f"""
SELECT run_id, machine, look, pairs, alpha, verdict.key AS metric, verdict.value ->> '$' AS verdict
FROM (
    SELECT run_id, machine, TRY_CAST(each.key AS BIGINT) + 1 AS look,
           TRY_CAST(each.value ->> '$.pairs' AS BIGINT) AS pairs,
           TRY_CAST(each.value ->> '$.alpha' AS DOUBLE) AS alpha, each.value -> '$.verdicts' AS verdicts
    FROM {_COUNTED_DETAILS}, json_each(looks) AS each) AS looked, json_each(looked.verdicts) AS verdict
ORDER BY run_id, machine, look, metric
"""

# A row per single value: `field` is its path in what is known of the metric, such as `phrases[0]`.
NOISE = f"""
SELECT run_id, machine, metric, ltrim(leaf.fullkey, '$.') AS field, TRY_CAST(leaf.atom AS DOUBLE) AS value,
       CASE leaf.type WHEN 'VARCHAR' THEN leaf.atom ->> '$' END AS text
FROM (
    SELECT run_id, machine, each.key AS metric, each.value AS known
    FROM {_COUNTED_DETAILS}, json_each(noise) AS each) AS told, json_tree(told.known) AS leaf
WHERE leaf.type NOT IN ('OBJECT', 'ARRAY')
ORDER BY run_id, machine, metric, field
"""

# The ratio is measured / predicted, whatever the metric's good direction.
PREDICTIONS = f"""
SELECT run_id, machine, role, metric, predicted, value AS measured, low, high,
       value / nullif(predicted, 0) AS ratio
FROM (
    SELECT run_id, machine, role, each.key AS metric, TRY_CAST(each.atom AS DOUBLE) AS predicted
    FROM (
        SELECT run_id, machine, arm.key AS role, arm.value AS foretold
        FROM {_COUNTED_DETAILS}, json_each(prediction) AS arm), json_each(foretold) AS each)
LEFT JOIN arm_metrics USING (run_id, machine, role, metric)
WHERE predicted IS NOT NULL
ORDER BY run_id, machine, role, metric
"""

EVIDENCE = """
SELECT decided.kind AS kind, name, decided_at, decided.outcome AS outcome, run_id, machine, path, state,
       runs.outcome AS run_outcome, quiet, started_at, code_hash, path IS NULL AS missing
FROM (SELECT kind, name, decided_at, outcome, unnest(evidence) AS run_id FROM decisions) AS decided
LEFT JOIN runs USING (run_id)
ORDER BY decided_at, kind, name, run_id, machine
"""

VIEWS: Mapping[str, str] = {
    "superseded": SUPERSEDED,
    "arm_metrics": ARM_METRICS,
    "visit_metrics": VISIT_METRICS,
    "results": RESULTS,
    "axes": AXES,
    "visits": VISITS,
    "pairs": PAIRS,
    "tuned": TUNED,
    "latest": LATEST,
    "history": HISTORY,
    "looks": LOOKS,
    "noise": NOISE,
    "predictions": PREDICTIONS,
    "evidence": EVIDENCE,
}

# Tables that serve the index itself and answer no question about results.
INTERNAL = frozenset({"index_info", "files"})


def statements() -> tuple[str, ...]:
    """The CREATE statements of every table and view, in order."""
    return (*create_tables(), *(f"CREATE VIEW {name} AS {text}" for name, text in VIEWS.items()))


def schema_hash() -> str:
    """What an index must have been made with: its tables, its views and the vocabulary of metrics."""
    return digest([INDEX_VERSION, *statements()])
