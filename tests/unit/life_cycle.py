"""The life cycle as text: every state of an experiment x every command, what it answers and with which words.

`python -m tests.unit.life_cycle > tests/unit/life_cycle.txt` writes the table that the tests compare with.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

from labkit.core.errors import LabkitError
from labkit.core.events import Note
from labkit.lab.deciding import promotion
from labkit.lab.deciding.burial import delete
from labkit.lab.deciding.check import check
from labkit.lab.deciding.judgement import judge
from labkit.lab.deciding.promotion import promote
from labkit.lab.deciding.renewal import renew
from labkit.lab.measuring.run import run
from labkit.lab.reading.board import board
from labkit.store.recipes import add_recipe, read_recipes
from labkit.store.write import write_record
from tests.unit.decided_lab import (
    CODE,
    DOMINATING,
    EXPERIMENT,
    NAME,
    REFUTED,
    TODAY,
    TRADE_OFF,
    measured_lab,
    open_lab,
    record_of,
    record_path,
    unquiet,
    unscored,
    with_windows,
)
from tests.unit.promoted_lab import Measured, again, promoted_lab
from tests.unit.sample_records import SLUG, from_elsewhere, with_candidate

WHY = "memory is short"


def _promoted(root: Path) -> None:
    promoted_lab(root)


def _reopened(root: Path) -> None:
    again(promoted_lab(root), Measured(REFUTED))


def _reopened_with_recipe(root: Path) -> None:
    """As the power may go: the entry is written, and nothing else was done yet."""
    recipes = read_recipes(promoted_lab(root))
    again(root, Measured(REFUTED))
    add_recipe(root, recipes[0])
    _move_to_promoted(root)


def _move_to_promoted(root: Path) -> None:
    (root / "experiments" / f"{NAME}.py").rename(root / "experiments" / "promoted" / f"{NAME}.py")


def _deleted(root: Path) -> None:
    delete(NAME, why="it lost", root=measured_lab(root, REFUTED), today=TODAY)


def _changed(change: Callable) -> Callable[[Path], None]:
    """A lab whose record was put through a change."""
    return lambda root: _write(change(record_of(open_lab(root))), root)


def _write(record: object, root: Path) -> None:
    write_record(record, root)  # type: ignore[arg-type]


def _then(first: Callable[[Path], object], second: Callable[[Path], object]) -> Callable[[Path], None]:
    def both(root: Path) -> None:
        first(root)
        second(root)

    return both


def _edit_promoted(root: Path) -> None:
    path = root / "experiments" / "promoted" / f"{NAME}.py"
    path.write_text(path.read_text() + "# edited\n")


def _edit_evidence(root: Path) -> None:
    path = record_path(root)
    path.write_text(path.read_text() + "\n")


def _move_back(root: Path) -> None:
    (root / "experiments" / "promoted" / f"{NAME}.py").rename(root / "experiments" / f"{NAME}.py")


def _dominate(root: Path) -> None:
    write_record(record_of(root, DOMINATING, "20261105T111500Z-other-ab-0a1b2c"), root)


def _elsewhere(root: Path) -> None:
    for letter in "ab":
        record = record_of(root, run_id=f"20261105T101500Z-null-ab-00000{letter}", slug=f"{letter}-machine")
        write_record(record, root)


def _half_buried(root: Path) -> None:
    _deleted(root)
    open_lab(root)


def _buried_with_recipe(root: Path) -> None:
    _promoted(root)
    with tempfile.TemporaryDirectory() as other:
        _deleted(Path(other))
        lines = (Path(other) / "experiments" / "GRAVEYARD.md").read_text()
    (root / "experiments" / "GRAVEYARD.md").write_text(lines)


def _renewed(root: Path) -> None:
    renew(NAME, until="2027-03-01", why="the machine was lent", root=measured_lab(root), today=TODAY)


def _renewed_late(root: Path) -> None:
    open_lab(root, EXPERIMENT.replace("2027-02-01", "2026-11-30"))
    renew(NAME, until="2027-02-20", why="the machine was lent", root=root, today=TODAY)


def _source(record: object, source: str) -> object:
    return replace(record, experiment={**record.experiment, "source_hash": source})  # type: ignore


STATES: Mapping[str, Callable[[Path], object]] = {
    "unknown name": lambda root: open_lab(root, EXPERIMENT.replace("null-ab", "another"), "another.py"),
    "open, no record": open_lab,
    "open, record supported": measured_lab,
    "open, record a trade-off": lambda root: measured_lab(root, TRADE_OFF),
    "open, record refuted": lambda root: measured_lab(root, REFUTED),
    "open, record undecided": _changed(lambda r: with_windows(r, [1e-4, 2e-3] * 8)),
    "open, record failed": _changed(lambda r: replace(r, outcome="failed")),
    "open, record partial": _changed(lambda r: replace(r, state="partial")),
    "open, record of other code": _changed(lambda r: from_elsewhere(r, code_hash="0ther")),
    "open, record of the file before an edit": _changed(lambda r: _source(r, "beef")),
    "open, record of a notebook": _changed(lambda r: _source(r, "")),
    "open, record with a class of a notebook": _changed(
        lambda r: with_candidate(r, plan={"sampler": "__main__.Mine"})
    ),
    "open, record scored on tune text": _changed(
        lambda r: replace(r, experiment={**r.experiment, "score": {**r.experiment["score"], "split": "tune"}})
    ),
    "open, record unquiet and sturdy": _changed(unquiet),
    "open, record unquiet and frail": lambda root: _write(unquiet(record_of(open_lab(root), pairs=8)), root),
    "open, baseline dominated": _then(measured_lab, _dominate),
    "open, records of other machines only": _then(open_lab, _elsewhere),
    "open, two files of one name": _then(measured_lab, lambda root: open_lab(root, file="twin.py")),
    "open, expired": lambda root: open_lab(root, EXPERIMENT.replace("2027-02-01", "2026-11-30")),
    "open, invalid": lambda root: open_lab(root, unscored(EXPERIMENT).replace("Workload(64", "Workload(-64")),
    "open, renewed": _renewed,
    "open, renewed after it expired": _renewed_late,
    "promoted": _promoted,
    "promoted, its file edited": _then(_promoted, _edit_promoted),
    "promoted, its evidence edited": _then(_promoted, _edit_evidence),
    "promoted, torn before the file moved": _then(_promoted, _move_back),
    "reopened": _reopened,
    "reopened, torn before the recipe went": _reopened_with_recipe,
    "reopened, torn before the file moved": _then(_reopened, _move_to_promoted),
    "deleted": _deleted,
    "deleted, torn before the file went": _half_buried,
    "deleted, torn before the recipe went": _buried_with_recipe,
}
# A run asks for the file and not for records, so of those states one is enough.
RUNS = frozenset(state for state in STATES if "record" not in state or state == "open, no record")


def table(state: str) -> str:
    """A section of the table: the state, and under each command what it answers."""
    parts = [f"## {state}"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(promotion, "code_hash", lambda: CODE))
        root, before = Path(), None
        for command in COMMANDS:
            if command is _run and state not in RUNS:
                continue
            if before is None or _files(root) != before:
                root = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "lab"
                STATES[state](root)
                before = _files(root)
            name = command.__name__[1:].replace("_", " ")
            parts.append(f"{name}:\n{_indented(_answer(command, root), root)}")
    return "\n".join(parts) + "\n"


def _files(root: Path) -> dict[Path, bytes]:
    found = (path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path: path.read_bytes() for path in found}


def _answer(command: Callable[[Path], str], root: Path) -> str:
    """What a command answers; one that refuses must leave every file as it was."""
    before = _files(root)
    try:
        return command(root)
    except LabkitError as error:
        assert _files(root) == before, f"{command.__name__} was refused and changed the lab"
        return f"REFUSED {error}"


def _indented(text: str, root: Path) -> str:
    for found, name in ((CODE, "CODE"), (str(root), "LAB"), (_hash(root), "FILE")):
        text = text.replace(found, name)
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def _hash(root: Path) -> str:
    found = [record_of(root).experiment["source_hash"]] if (root / "experiments").is_dir() else []
    return found[0] if found else "no file"


def _experiments(root: Path) -> str:
    rows = board(root, TODAY, decided=True)
    return "\n".join(
        f"{row.name}: {', '.join([row.state, *row.conditions])}; days left {row.days_left}, "
        f"records {row.records}, last outcome {row.last_outcome or '-'}"
        for row in rows
    )


def _check(root: Path) -> str:
    checked = check(root, today=TODAY)
    lines = [*(f.line() for f in checked.faults), *checked.notes, checked.sentence()]
    return ("" if checked.ok else "FAILS ") + "\n".join(lines)


def _run(root: Path) -> str:
    """The file where it lies now; of a deleted experiment where it lay."""
    kept = root / "experiments" / "promoted" / f"{NAME}.py"
    path = kept if kept.exists() else root / "experiments" / f"{NAME}.py"
    if path.exists():
        path.write_text(unscored(path.read_text()))
    notes: list[str] = []
    finished = run(
        path,
        root=root,
        sink=lambda event: notes.append(event.text) if isinstance(event, Note) else None,
        lease=root.parent / "lease",
        now=lambda: datetime(2026, 12, 1, tzinfo=UTC),
    )
    told = [note for note in notes if "expired" in note]
    return "\n".join([f"a {finished.record.state} record", *told])


def _renew(root: Path) -> str:
    return renew(NAME, until="2027-03-01", why="later", root=root, today=TODAY).text()


def _judge(root: Path) -> str:
    found = judge(NAME, root=root, machine=SLUG, code=CODE)
    return f"{found.outcome}, by {found.rule!r}\nnext: {found.next_step}"


def _revalidate(root: Path) -> str:
    """Where what it measures no longer improves what was claimed."""
    run_id = "20261206T101500Z-null-ab-0a1b2c"
    (found,) = again(root, Measured(REFUTED, run_id=run_id), NAME)
    return found.text()


def _promote(root: Path) -> str:
    return promote(NAME, why=WHY, root=root, today=TODAY, machine=SLUG).text()


def _promote_anyway(root: Path) -> str:
    """With the trade-off accepted: told only where it makes a difference."""
    plain = _answer(_promote, root)
    with contextlib.suppress(LabkitError):
        text = promote(NAME, why=WHY, root=root, accept_trade_off=True, today=TODAY, machine=SLUG).text()
        return "as above" if text == plain or not plain.startswith("REFUSED") else text
    return "as above"


def _delete(root: Path) -> str:
    text = delete(NAME, why="it lost", root=root, today=TODAY).text()
    left = sorted(p.relative_to(root).as_posix() for p in (root / "experiments").rglob("*.py"))
    return f"{text}\nleft: {', '.join(left) or 'no file'}, {len(read_recipes(root))} recipes"


COMMANDS = (
    *(_experiments, _check, _judge, _renew, _promote, _promote_anyway),
    *(_revalidate, _delete, _run),
)


def main() -> None:
    sys.stdout.write("\n".join(table(state) for state in STATES))


if __name__ == "__main__":
    main()
