"""Floor: the A/A control that the verdicts of a run rest on, found among the records of its machine class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from labkit.bench.floor import Spread, floors, spread
from labkit.bench.pairs import ROLES
from labkit.bench.statistics import MIN_UNITS
from labkit.core.errors import LabkitError
from labkit.core.metrics import METRICS
from labkit.core.records import Record
from labkit.lab.experiment import Experiment
from labkit.lab.measuring.measured import Measured
from labkit.model.backend import BUILDS
from labkit.store import query
from labkit.store.read import read_record

FRESH_FOR = timedelta(days=30)
CLOCK_ERROR = timedelta(hours=1)
# What makes a machine faster or slower without any change of its class.
DECISIVE = ("mlx", *BUILDS, "mlx-lm", "mkl")

_CONTROLS = """
SELECT path FROM runs JOIN arms USING (run_id, machine)
WHERE kind = 'control' AND state = 'complete' AND machine = ? AND workload_hash = ? AND design = ?
GROUP BY path, started_at, quiet
HAVING count(*) = 2 AND count(*) FILTER (WHERE arm_hash = ?) = 2
ORDER BY (quiet IS TRUE) DESC, started_at DESC
"""


@dataclass(frozen=True, slots=True)
class Floor:
    """What two equal arms differed by. pairs: over how many. spreads: metric -> what was found.

    stale: why it no longer counts, such as another version of mlx; empty where it does. quiet: whether
    nothing else used the machine then.
    """

    run_id: str
    started_at: str
    pairs: int
    spreads: Mapping[str, Spread]
    stale: str = ""
    quiet: bool = True

    def at(self, pairs: int) -> dict[str, float]:
        """Metric -> floor of a run of so many pairs, as a ratio less 1 or in the metric's unit."""
        return floors(self.spreads, self.pairs, pairs)

    def to_json(self, pairs: int) -> dict[str, Any]:
        """As a record of a run of `pairs` pairs holds it."""
        at = self.at(pairs)
        metrics = {name: {**asdict(found), "floor": at[name]} for name, found in self.spreads.items()}
        return {
            "run_id": self.run_id,
            "started_at": self.started_at,
            "pairs": self.pairs,
            "metrics": metrics,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Floor:
        """The floor that a record or a journal holds. Raise KeyError or TypeError where it is none."""
        ends = ("estimate", "low", "high")
        spreads = {name: Spread(*(float(found[e]) for e in ends)) for name, found in data["metrics"].items()}
        return cls(data["run_id"], data["started_at"], data["pairs"], spreads)


def wants_floor(experiment: Experiment, pairs: int) -> bool:
    """Whether a floor would bear on a run: not on a control, nor where no verdict of visits can come."""
    measured = [name for name in experiment.hypothesis.margins() if METRICS[name].source == "visit"]
    return bool(measured) and pairs >= MIN_UNITS and not experiment.control


def find_floor(
    root: Path,
    experiment: Experiment,
    arm_hash: str,
    machine: str,
    packages: Mapping[str, str],
    now: datetime,
    fingerprint: str = "",
) -> Floor | None:
    """The A/A control of the baseline on this machine class, workload and design; None where there is none.

    arm_hash: of the baseline as records name it. fingerprint: of its artifact, not compared where empty. A
    quiet control comes first, then the newest. It is stale after 30 days, with a start in the future, and
    under another artifact or other versions of mlx, mlx-lm or the BLAS; another version of labkit's own code
    leaves it as it is. A record without what that takes is passed over.
    """
    asked = [machine, experiment.workload.hash(), experiment.design, arm_hash]
    stale: Floor | None = None
    for path in query.sql(root, _CONTROLS, asked)["path"]:
        try:
            record = read_record(root / str(path))
            floor = floor_of(record, _staleness(record, packages, now, fingerprint))
        except (LabkitError, KeyError, TypeError, ValueError, AttributeError):
            continue  # `labkit store list` and a decision on it tell what is wrong with it
        if floor is not None and not floor.stale:
            return floor
        stale = stale or floor
    return stale


def floor_of(record: Record, stale: str = "") -> Floor | None:
    """The floor that an A/A control shows; None below the pairs that any verdict needs."""
    measured = Measured(list(record.visits))
    pairs = measured.ok_pairs()
    if len(pairs) < MIN_UNITS:
        return None
    spreads: dict[str, Spread] = {}
    for name in METRICS:
        try:
            first, second = (measured.values(role, name, pairs) for role in ROLES)
        except KeyError:
            continue
        found = spread(name, first, second)
        if found is not None:
            spreads[name] = found
    quiet = record.quiet.get("quiet") is True
    return Floor(record.run_id, record.started_at, len(pairs), spreads, stale, quiet)


def _staleness(record: Record, packages: Mapping[str, str], now: datetime, fingerprint: str) -> str:
    age = now - datetime.fromisoformat(record.started_at)
    if age > FRESH_FOR:
        return f"it is {age.days} days old"
    if age < -CLOCK_ERROR:
        return f"it was measured in the future, at {record.started_at}"
    if fingerprint and record.arm("baseline").artifact["fingerprint"] != fingerprint:
        return "it was measured on another artifact of that name"
    then = record.provenance["packages"]
    other = [name for name in DECISIVE if then.get(name) != packages.get(name)]
    return f"it was measured with {other[0]} {then.get(other[0], 'absent')}" if other else ""
