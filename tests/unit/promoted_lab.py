"""Labs whose one experiment is promoted, and what a new measurement of it would find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit.core.records import Record
from labkit.lab.deciding.promotion import promote
from labkit.lab.deciding.revalidate import revalidate
from labkit.lab.deciding.revalidation import Revalidated
from labkit.lab.measuring.finished import Finished
from labkit.model.null import parse_null
from labkit.store.read import read_record
from labkit.store.write import write_record
from tests.unit.decided_lab import CANDIDATE, NAME, SUPPORTED, TODAY, open_lab, record_of, record_path
from tests.unit.sample_records import SLUG, Shape, with_candidate

AGAIN = "20261205T101500Z-null-ab-0a1b2c"
Change = Callable[[Record], Record]


def at_hand(record: Record) -> Record:
    """The record with the candidate's artifact as it is here: the null model's own."""
    artifact = record.arm("candidate").artifact
    return with_candidate(record, artifact={**artifact, "fingerprint": _fingerprint()})


def promoted_lab(root: Path, shape: Shape = SUPPORTED, change: Change = lambda r: r) -> Path:
    """A lab whose experiment was promoted on a record, put through a change."""
    write_record(change(at_hand(record_of(open_lab(root), shape))), root)
    promote(NAME, why="memory is short", root=root, today=TODAY, machine=SLUG, accept_trade_off=True)
    return root


class Measured:
    """What runs an experiment in these tests: writes a record of a shape. calls: what it was asked for."""

    def __init__(self, shape: Shape = SUPPORTED, change: Change = lambda r: r, run_id: str = AGAIN) -> None:
        self.shape, self.change, self.run_id = shape, change, run_id
        self.calls: list[tuple[Path, int]] = []

    def __call__(self, path: Path, *, root: Path, pairs: int, sink: Any) -> Finished:
        self.calls.append((path, pairs))
        source = read_record(record_path(root)).experiment["source_hash"]
        record = at_hand(record_of(root, self.shape, self.run_id, pairs=pairs, code="new0" * 4))
        record = self.change(replace(record, experiment={**record.experiment, "source_hash": source}))
        return Finished(record, write_record(record, root))


def again(root: Path, measure: Measured, *names: str, **options: Any) -> tuple[Revalidated, ...]:
    """Revalidate with a measurement that is made up."""
    arguments: dict[str, Any] = {"today": TODAY, "machine": SLUG, **options}
    return revalidate(*names, root=root, measure=measure, **arguments).results


def _fingerprint() -> str:
    return parse_null(CANDIDATE.model).profile.fingerprint
