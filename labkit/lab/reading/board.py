"""The board: the experiments of a lab with their state, days left and last outcome. Reads only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

from labkit.lab.deciding.ledger import LabFile, Ledger, State, lab_root, read_ledger, same_names
from labkit.lab.reading.runs import Run, runs

Condition = Literal["expired", "renewed", "reopened", "invalid", "duplicate", "conflict"]


@dataclass(frozen=True, slots=True)
class BoardRow:
    """An experiment. state: `open`, `promoted` or `deleted`; there is no other.

    conditions of an open one: `expired` (past its date), `renewed`, `reopened` (it was promoted, and that no
    longer held), `invalid` (the file does not load; statement says why), `duplicate` (another file bears its
    name), `conflict` (a decided one bears it).
    days_left: to the expiry, a renewal counted; None where nothing expires. decided_at: ISO date, or empty.
    """

    name: str
    file: str
    state: State
    conditions: tuple[Condition, ...]
    days_left: int | None
    records: int
    last_outcome: str
    statement: str
    decided_at: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def board(
    root: Path, today: date, *, decided: bool = False, known: tuple[Run, ...] | None = None
) -> tuple[BoardRow, ...]:
    """A row per open experiment, and with `decided` per promoted and deleted one, in that order.

    known: the runs of the lab where they have been asked for already (`labkit.lab.reading.runs`).
    Raises ExperimentInvalid without experiments/, RecipeInvalid where a file of decisions is broken.
    """
    ledger = read_ledger(lab_root(root))
    known = runs(root) if known is None else known
    twice = {name for name, _ in same_names(ledger.open)}
    half = [f for f in ledger.kept if ledger.torn_reopening(f.path.stem) and not ledger.files(f.path.stem)]
    rows = [_open_row(ledger, file, known, today, twice) for file in (*ledger.open, *half)]
    if decided:
        rows += [*_promoted_rows(ledger, known), *_deleted_rows(ledger, known)]
    return tuple(rows)


def _open_row(
    ledger: Ledger, file: LabFile, known: tuple[Run, ...], today: date, twice: set[str]
) -> BoardRow:
    mine = _of(file.name, known)
    expiry = ledger.expiry(file)
    days = (expiry - today).days if expiry else None
    holds: dict[Condition, bool] = {
        "expired": days is not None and days < 0,
        "renewed": ledger.renewal(file.name) is not None,
        "reopened": ledger.reopening(file.name) is not None,
        "invalid": file.experiment is None,
        "duplicate": file.name in twice,
        "conflict": bool(ledger.decided(file.name)),
    }
    return BoardRow(
        name=file.name,
        file=file.path.name,
        state="open",
        conditions=tuple(condition for condition, is_so in holds.items() if is_so),
        days_left=days,
        records=len(mine),
        last_outcome=mine[-1].outcome if mine else "",
        statement=file.experiment.hypothesis.statement if file.experiment else file.problem,
    )


def _promoted_rows(ledger: Ledger, known: tuple[Run, ...]) -> Iterator[BoardRow]:
    for recipe in filter(lambda r: ledger.standing(r.name), ledger.recipes):
        file, mine = ledger.kept_file(recipe.name), _of(recipe.name, known)
        claim = file.experiment.hypothesis.statement if file and file.experiment else recipe.why
        name = f"promoted/{file.path.name}" if file else ""
        counts = (None, len(mine), recipe.outcome)
        yield BoardRow(recipe.name, name, "promoted", (), *counts, claim, recipe.decided_at)


def _deleted_rows(ledger: Ledger, known: tuple[Run, ...]) -> Iterator[BoardRow]:
    for burial in ledger.burials:
        counts = (None, len(_of(burial.name, known)), burial.outcome)
        yield BoardRow(burial.name, "", "deleted", (), *counts, burial.claim, burial.decided_at)


def _of(name: str, known: tuple[Run, ...]) -> list[Run]:
    return [run for run in known if run.experiment == name]
