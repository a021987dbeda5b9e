"""Repeats: what the runs of one arm differ by when nothing else does, as the records of a lab show it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy import special

from labkit.core.metrics import METRICS
from labkit.core.records import Record
from labkit.store import query

# With fewer degrees of freedom the interval would say more of the few runs than of the metric.
LEAST_FREEDOM = 3
_QUERY = """
SELECT metric, sum(spread * (runs - 1)) / sum(runs - 1), sum(runs - 1) // count(DISTINCT role)
FROM (SELECT metric, role, count(*) AS runs,
             var_samp(CASE WHEN list_contains(?, metric) THEN ln(value) ELSE value END) AS spread
      FROM history
      JOIN (SELECT run_id, machine, windows_hash, source_hash FROM runs) USING (run_id, machine)
      WHERE machine = ? AND workload_hash = ? AND list_contains(?, arm_hash) AND state = 'complete'
        AND quiet AND (value > 0 OR NOT list_contains(?, metric))
      GROUP BY metric, arm_hash, role, experiment, source_hash, design, code_hash, packages_hash,
               fingerprint, plan_hash, CASE WHEN list_contains(?, metric) THEN windows_hash END
      HAVING count(*) > 1)
GROUP BY metric
"""


@dataclass(frozen=True, slots=True)
class Spread:
    """SD from run to run, of the log for a ratio metric, with its degrees of freedom; 0 of them: assumed."""

    sd: float
    freedom: int

    def reach(self) -> float:
        """Half the 95% interval of the difference between two runs."""
        quantile = float(special.stdtrit(self.freedom, 0.975)) if self.freedom else 1.96
        return quantile * self.sd * math.sqrt(2)


def run_spreads(root: Path, records: Sequence[Record]) -> Mapping[str, Spread]:
    """Metric -> spread, pooled over the arms of these records on the first one's machine class and workload.

    Runs count that are alike in code, packages, artifact, plan, experiment file and design, for a score in
    its text too; both arms of a run count once, since they share its moment. Metrics of too few runs are left
    out.
    """
    first = records[0]
    arms = sorted({arm.arm_hash for record in records for arm in record.arms})
    ratios = [name for name, metric in METRICS.items() if metric.scale == "ratio"]
    scores = [name for name, metric in METRICS.items() if metric.source == "score"]
    asked = [ratios, first.machine.get("slug"), first.workload_hash, arms, ratios, scores]
    rows = query.ask(root, lambda index: index.execute(_QUERY, asked).fetchall())
    return {name: Spread(math.sqrt(max(0.0, v)), int(n)) for name, v, n in rows if n >= LEAST_FREEDOM}
