"""Show: a record opened by what a person calls it, and predictions beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from labkit.core.errors import RecordInvalid
from labkit.core.metrics import METRICS
from labkit.core.records import Record
from labkit.lab.measuring.finished import Finished
from labkit.lab.reading.lookup import look_up
from labkit.lab.reading.told import told_problems
from labkit.plan.values import shown
from labkit.store.lab_folder import find_lab


@dataclass(frozen=True, slots=True)
class Predicted:
    """What `labkit fit` had said of an arm, and what came. ratio: measured / predicted, None without both."""

    role: str
    metric: str
    predicted: float
    measured: float | None
    ratio: float | None


def record(run: str, root: Path | str | None = None) -> Finished:
    """A record of the lab, as `labkit.run` returns it. The last line of a cell shows its verdicts.

    run: a run id, the start or end of one, a path below the lab, or an experiment, whose newest record is
    meant. root: None takes the nearest folder upwards with experiments/. Raises RecordInvalid where several
    are meant or the record is damaged, NoRecords for none.
    """
    root = find_lab() if root is None else Path(root)
    found = look_up(root, run)
    return Finished(found.record, root / found.path)


def check_shown(record: Record) -> None:
    """Raise RecordInvalid where what a record tells beside its verdicts has no shape that can be shown."""
    problem = next(chain(_missing(record), told_problems(record)), None)
    if problem:
        step = f"labkit show {record.run_id} --json prints it as it is"
        raise RecordInvalid("a record with readable fields was needed", got=problem, next_step=step)


def _missing(record: Record) -> Iterator[str]:
    """What the tables of verdicts and the sentence below them cannot do without."""
    tables = {"experiment": record.experiment, "quiet": record.quiet, "provenance": record.provenance}
    yield from (f"{name}: a table is needed" for name, table in tables.items() if not isinstance(table, dict))
    needed = (("experiment", "name", str), ("experiment", "statement", str), ("experiment", "expects", dict))
    for table, name, kind in (*needed, ("quiet", "quiet", bool)):
        if not isinstance(tables[table].get(name), kind):
            yield f"{table}.{name}: {kind.__name__} is needed, got {shown(tables[table].get(name))}"


def predictions(record: Record) -> tuple[Predicted, ...]:
    """Every prediction that a record keeps, arm by arm in the order of the metrics."""
    found = []
    for arm in record.arms:
        said: Mapping[str, Any] = record.prediction.get(arm.role) or {}
        for metric in (name for name in METRICS if name in said):
            estimate, value = arm.metrics.get(metric), float(said[metric])
            measured = None if estimate is None else estimate.value
            ratio = measured / value if measured is not None and value else None
            found.append(Predicted(arm.role, metric, value, measured, ratio))
    return tuple(found)
