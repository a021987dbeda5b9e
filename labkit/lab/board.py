"""The board: every open experiment of a lab with its state, days left and last outcome. Reads only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

from labkit.core.errors import ExperimentInvalid, LabkitError
from labkit.core.records import Record
from labkit.lab.experiment import load_experiment
from labkit.store.read import read_records


@dataclass(frozen=True, slots=True)
class BoardRow:
    """state: `open`, `expired` (past its date) or `invalid` (the file does not load; statement says why)."""

    name: str
    file: str
    state: Literal["open", "expired", "invalid"]
    days_left: int | None
    records: int
    last_outcome: str
    statement: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def experiment_files(root: Path) -> list[Path]:
    """The experiment files of a lab, by name; a leading underscore hides one."""
    return sorted(p for p in (root / "experiments").glob("*.py") if not p.name.startswith("_"))


def board(root: Path, today: date) -> tuple[BoardRow, ...]:
    """One row per file in `root`/experiments. Raises ExperimentInvalid where there is none."""
    files = experiment_files(root)
    if not files:
        need = "experiment files are needed in the experiments folder of the lab"
        raise ExperimentInvalid(need, got=f"none below {root}", next_step="give --root, or write one")
    records = [stored.record for stored in read_records(root).stored]
    return tuple(_row(path, records, today) for path in files)


def _row(path: Path, records: list[Record], today: date) -> BoardRow:
    try:
        experiment = load_experiment(path).experiment
    except LabkitError as error:
        return BoardRow(path.stem, path.name, "invalid", None, 0, "", error.need.splitlines()[0])
    mine = [r for r in records if r.experiment["name"] == experiment.name]
    days = experiment.days_left(today)
    last = max(mine, key=lambda r: r.started_at).outcome if mine else ""
    state = "open" if days >= 0 else "expired"
    statement = experiment.hypothesis.statement
    return BoardRow(experiment.name, path.name, state, days, len(mine), last, statement)
