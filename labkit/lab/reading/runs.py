"""Runs: the records that count, as the index lists them. Reads no record as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.store import query
from labkit.store.read import Damaged

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_COLUMNS = "run_id, machine, path, state, outcome, experiment, statement, source_hash, packages_hash"
# A control measures the bench, not the experiment that lent it its name.
_COUNTED = (
    f"SELECT {_COLUMNS} FROM runs ANTI JOIN superseded USING (run_id, machine) "
    "WHERE kind <> 'control' ORDER BY started_at, run_id"
)


@dataclass(frozen=True, slots=True)
class Run:
    """A record by what decides whether it counts. path: below the lab root, in POSIX form."""

    run_id: str
    machine: str
    path: str
    state: str
    outcome: str
    experiment: str
    statement: str
    source_hash: str
    packages_hash: str


@dataclass(frozen=True, slots=True)
class Known:
    """What a lab holds. runs: oldest first. damaged: the files that cannot be read."""

    runs: tuple[Run, ...]
    damaged: tuple[Damaged, ...]


def known(root: Path) -> Known:
    """The runs and the damaged files of a lab, asked at once."""
    return query.ask(root, lambda index: Known(_runs(index), query.damaged_files(index)))


def runs(root: Path) -> tuple[Run, ...]:
    """Every record of a lab but its controls, oldest first; damaged ones are left out.

    A run that was stopped and gone on with is one run, whose last record counts.
    """
    return query.ask(root, _runs)


def runs_of(root: Path, name: str) -> tuple[Run, ...]:
    """The records of one experiment, oldest first."""
    return tuple(run for run in runs(root) if run.experiment == name)


def _runs(index: DuckDBPyConnection) -> tuple[Run, ...]:
    rows = index.execute(_COUNTED).fetchall()
    return tuple(Run(*("" if value is None else str(value) for value in row)) for row in rows)
