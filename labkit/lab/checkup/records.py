"""Records: what a lab's folder holds: records, damaged ones, unfinished runs, expired experiments.

Reads only, and no more than is quick: a large lab is counted, its index checks the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

from labkit.lab.checkup.line import Line, failed
from labkit.lab.measuring.unfinished import unfinished
from labkit.lab.reading.board import BoardRow, board
from labkit.model.wording import first_names, one_line
from labkit.store.read import read_records, record_files

QUICK_RECORDS = 500
_NAMED_DAMAGE = 3


def lab_lines(root: Path, today: date) -> Iterator[Line]:
    """Lines of the lab at `root`; one that says so where there is none."""
    if not (root / "experiments").is_dir() and not (root / "results").is_dir():
        yield Line("lab", "folder", "absent", "no lab here: neither experiments/ nor results/")
        return
    quick = len(record_files(root)) <= QUICK_RECORDS
    parts = {
        "records": _record_lines,
        "unfinished runs": _unfinished_lines,
        "experiments": _experiment_lines,
    }
    for name, part in parts.items():
        try:
            yield from part(root, today, quick)
        except Exception as error:  # the other parts of a lab can still be told
            yield failed("lab", name, error)


def _record_lines(root: Path, _today: date, quick: bool) -> Iterator[Line]:
    count = len(record_files(root))
    if not quick:
        told = "too many to read here: labkit store rebuild names damaged ones"
        yield Line("lab", "records", "ok", f"{count:,}; {told}")
        return
    bad = read_records(root).damaged
    yield Line("lab", "records", "ok", f"{count - len(bad):,} that can be read")
    for damaged in bad[:_NAMED_DAMAGE]:
        yield Line(
            "lab",
            "damaged",
            "warning",
            f"{damaged.path}: {damaged.reason}",
            "labkit store rebuild lists them",
        )
    if len(bad) > _NAMED_DAMAGE:
        yield Line(
            "lab", "damaged", "warning", f"{len(bad) - _NAMED_DAMAGE} more", "labkit store rebuild lists them"
        )


def _unfinished_lines(root: Path, _today: date, _quick: bool) -> Iterator[Line]:
    found = [run for run in unfinished(root) if not run.is_control]
    if not found:
        yield Line("lab", "unfinished runs", "ok", "none")
    for run in found:
        yield Line("lab", "unfinished run", "warning", f"{run.name}: {run.progress()}", run.command())


def _experiment_lines(root: Path, today: date, quick: bool) -> Iterator[Line]:
    """Open experiments in a line, then one for each that is expired or in the way of a decision."""
    if not quick or not (root / "experiments").is_dir():
        yield Line("lab", "experiments", "absent", "not looked at here: labkit check")
        return
    rows = board(root, today)
    named = f": {first_names(row.name for row in rows)}" if rows else ""
    yield Line("lab", "experiments", "ok", f"{len(rows)} open{named}")
    for row in rows:
        yield from _row_lines(row)


def _row_lines(row: BoardRow) -> Iterator[Line]:
    if "expired" in row.conditions:
        mend = f"labkit promote, delete or renew {row.name}"
        yield Line("lab", row.name, "warning", f"expired {_ago(-(row.days_left or 0))}", mend)
    if "invalid" in row.conditions:
        yield Line("lab", row.file, "warning", f"does not load: {one_line(row.statement)}", "labkit check")
    clashes = [condition for condition in row.conditions if condition in ("duplicate", "conflict")]
    if clashes:
        yield Line("lab", row.file, "warning", f"its name is taken ({', '.join(clashes)})", "labkit check")


def _ago(days: int) -> str:
    return "1 day ago" if days == 1 else f"{days:,} days ago"
