"""Runs: the records of an experiment as the index lists them. Reads no record as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from labkit.store import query

_COLUMNS = "run_id, machine, path, state, outcome, experiment, statement, source_hash, packages_hash"


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


def runs(root: Path) -> tuple[Run, ...]:
    """Every record of a lab, oldest first; damaged ones are left out."""
    frame = query.sql(root, f"SELECT {_COLUMNS} FROM runs ORDER BY started_at, run_id")
    rows = frame.astype(object).where(frame.notna(), "").itertuples(index=False)
    return tuple(Run(*map(str, row)) for row in rows)


def runs_of(root: Path, name: str) -> tuple[Run, ...]:
    """The records of one experiment, oldest first."""
    return tuple(run for run in runs(root) if run.experiment == name)
