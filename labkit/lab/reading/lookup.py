"""Lookup: the record that a person means by a run id, the start or end of one, a path or an experiment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.core.errors import NoRecords, RecordInvalid
from labkit.store import query
from labkit.store.read import Damaged, Stored, read_record

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SHOWN = 6
_LISTED = """
SELECT run_id, machine, path, experiment, state, superseded_by IS NOT NULL
FROM runs LEFT JOIN superseded USING (run_id, machine)
ORDER BY started_at, run_id, machine
"""


@dataclass(frozen=True, slots=True)
class _Listed:
    run_id: str
    machine: str
    path: str
    experiment: str
    state: str
    superseded: bool

    def is_called(self, text: str) -> bool:
        return text in (self.run_id, self.path, f"{self.machine}/{self.run_id}")

    def may_be(self, text: str) -> bool:
        return bool(text) and (self.run_id.startswith(text) or self.run_id.endswith(text))


def look_up(root: Path, text: str) -> Stored:
    """The record of a run id, of its start or its end where no other has it, of a path below the lab, or the
    newest of an experiment: a complete one if there is any.

    Raises RecordInvalid where several are meant or the one that is meant is damaged, NoRecords for none.
    """
    listed, damaged = query.ask(root, _read)
    found = _meant(listed, text)
    if len(found) == 1:
        return Stored(found[0].path, read_record(root / found[0].path))
    if found:
        options = [run.path if _shared(run, found) else run.run_id for run in found[:_SHOWN]]
        raise RecordInvalid("one record was needed", got=f"{text}, which {len(found)} have", options=options)
    raise _damaged(damaged, text) or _unknown(listed, text)


def _read(index: DuckDBPyConnection) -> tuple[list[_Listed], tuple[Damaged, ...]]:
    rows = index.execute(_LISTED).fetchall()
    return [_Listed(*row) for row in rows], query.damaged_files(index)


def _meant(listed: Sequence[_Listed], text: str) -> list[_Listed]:
    called = [run for run in listed if run.is_called(text)]
    if called:
        return called
    of_experiment = [run for run in listed if run.experiment == text and not run.superseded]
    if of_experiment:
        complete = [run for run in of_experiment if run.state == "complete"]
        return (complete or of_experiment)[-1:]
    return [run for run in listed if run.may_be(text)]


def _shared(run: _Listed, found: Sequence[_Listed]) -> bool:
    """Whether another machine class has a record of that id, as a copy or by chance."""
    return sum(other.run_id == run.run_id for other in found) > 1


def _damaged(damaged: Sequence[Damaged], text: str) -> RecordInvalid | None:
    for bad in damaged:
        stem = Path(bad.path).stem
        if text and (text == bad.path or stem.startswith(text) or stem.endswith(text)):
            step = "labkit store set-aside moves it out of the way; nothing is deleted"
            return RecordInvalid(
                "a readable record was needed", got=f"{bad.path}: {bad.reason}", next_step=step
            )
    return None


def _unknown(listed: Sequence[_Listed], text: str) -> NoRecords:
    if not listed:
        step = "labkit run experiments/<file>.py"
        return NoRecords("a record was needed, and this lab has none", got=text, next_step=step)
    counted = [run for run in reversed(listed) if not run.superseded]
    newest = list(dict.fromkeys((*(run.experiment for run in counted), *(run.run_id for run in counted))))
    need = "the id of a run, its start or end, or the name of an experiment with records was needed"
    return NoRecords(need, got=text or "nothing", options=newest[:_SHOWN], next_step="labkit store list")
