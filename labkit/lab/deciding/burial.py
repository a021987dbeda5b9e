"""Burial: an experiment is deleted, open or promoted; its line in the graveyard stays, and so do its records.

The line is written first, then the recipe is withdrawn, then the file goes: what is torn is ended by deleting
again. A file that git does not hold as it is moves aside, so that nothing is lost.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import count
from pathlib import Path

from labkit.core.decision import Burial, Decision
from labkit.engine.shield import uninterrupted
from labkit.lab.deciding.decided import Decided, as_first_given
from labkit.lab.deciding.git_files import is_tracked, is_unchanged
from labkit.lab.deciding.ledger import LabFile, Ledger, lab_root, read_ledger
from labkit.lab.deciding.moving import told
from labkit.lab.deciding.refusal import refused, unsaid, unwritable
from labkit.lab.deciding.running import remove_journals, seal_killed, unmeasured
from labkit.lab.reading.runs import runs_of
from labkit.store.decisions import deciding
from labkit.store.durable import make_folder, move_new, remove, replace_text
from labkit.store.graveyard import add_burial
from labkit.store.recipes import remove_recipe
from labkit.store.regular import read_bytes

NOT_MEASURED = "not measured"
ASIDE = Path("results") / "set-aside" / "experiments"


@dataclass(frozen=True, slots=True)
class _Gone:
    """What became of a file. aside: where it lies now, None where git holds it. tracked: in git's index."""

    shown: str
    aside: Path | None
    tracked: bool


def delete(name: str, *, why: str, root: str | Path | None = None, today: date | None = None) -> Decided:
    """Delete an experiment: open, expired or promoted, whose recipe is then withdrawn; also a broken file.

    name: the experiment's, or the file's without `.py` where it does not load. root: the lab; None takes the
    nearest folder upwards with experiments/. Where a deletion was torn, this ends it. Records and arms stay;
    what a killed run left is sealed into one first. A notebook that was made with the file goes with it.
    Raises DecisionRefused with every reason, RecipeInvalid where a file of decisions is broken.
    """
    place, day = lab_root(root), (today or datetime.now(UTC).date()).isoformat()
    with deciding(place):
        seal_killed(place)
        ledger = read_ledger(place)
        files = _files(ledger, name)
        reasons = [*unsaid(why), *unwritable("name", name), *unmeasured(place, name)]
        reasons += _against(ledger, name, files)
        if reasons:
            raise refused(name, "deleted", reasons)
        first = ledger.burial(name)
        burial = first or _burial(ledger, name, files, why.strip(), day)
        with uninterrupted():
            if first is None:
                add_burial(place, burial)
            if ledger.recipe(name):
                remove_recipe(place, name)
            # The experiment's own file last: while it is there, a torn deletion can be ended.
            gone = [
                _remove(ledger, path, burial) for path in (*_notebooks(place, name, files), *_paths(files))
            ]
            remove_journals(place, name)
    decision = Decision("deleted", name, burial.decided_at, burial.why, burial.outcome, burial.evidence)
    stands = as_first_given(burial.why, why) if first else ()
    return Decided(decision, None, (*stands, *_lines(burial, gone)))


def torn_burial(ledger: Ledger, name: str) -> bool:
    """Whether a name is in the graveyard and something of that experiment, and of no other, is there."""
    left = [*ledger.files(name), *filter(None, (ledger.kept_file(name),))]
    known = ledger.burial(name) is not None and (left or ledger.recipe(name))
    return bool(known) and not list(_strangers(ledger, name, left))


def _strangers(ledger: Ledger, name: str, files: list[LabFile]) -> Iterator[LabFile]:
    """Files under a buried name that its line does not know, nor any record that the line lists."""
    burial = ledger.burial(name)
    if burial is None or not files:
        return
    measured = {run.source_hash for run in runs_of(ledger.root, name) if run.run_id in burial.evidence}
    yield from (file for file in files if file.source_hash not in {*burial.sources, *measured})


def _against(ledger: Ledger, name: str, files: list[LabFile]) -> Iterator[str]:
    """What speaks against a deletion: one that was made already, or a file that it could not know again."""
    if ledger.burial(name) and not torn_burial(ledger, name):
        yield f"state: an open or promoted experiment is needed, got {ledger.decided(name)}"
    for file in _strangers(ledger, name, files):
        shown = ledger.shown(file.path)
        yield f"name: one of its own is needed for {shown}, got that of a deleted one; give it another"
    for file in files:
        if not file.source_hash:
            yield f"file: one that can be read is needed, got {ledger.shown(file.path)}; mend its permissions"


def _paths(files: list[LabFile]) -> Iterator[Path]:
    return (file.path for file in files)


def _notebooks(root: Path, name: str, files: list[LabFile]) -> Iterator[Path]:
    """The notebooks that `labkit new` made with the experiment's files, by the file that each names."""
    for stem in sorted({name, *(file.path.stem for file in files)}):
        path = root / "notebooks" / f"{stem}.ipynb"
        with suppress(OSError):  # there is none, or no regular file
            if f"experiments/{stem}.py".encode() in read_bytes(path):
                yield path


def _files(ledger: Ledger, name: str) -> list[LabFile]:
    """The file of the experiment, and that in promoted/. Raises DecisionRefused where nothing is known."""
    kept = ledger.kept_file(name)
    if not ledger.files(name):
        if kept is None and not ledger.decided(name):
            raise ledger.unknown(name)
        return [kept] if kept else []
    return [ledger.the_file(name), *([kept] if kept else [])]


def _burial(ledger: Ledger, name: str, files: list[LabFile], why: str, day: str) -> Burial:
    mine = runs_of(ledger.root, name)
    loaded = next((file.experiment for file in files if file.experiment), None)
    claim = loaded.hypothesis.statement if loaded else mine[-1].statement if mine else ""
    outcome = mine[-1].outcome if mine else NOT_MEASURED
    evidence = tuple(run.run_id for run in mine)
    withdrawn, sources = ledger.recipe(name) is not None, tuple(file.source_hash for file in files)
    return Burial(name, claim, outcome, why, day, evidence, withdrawn, sources)


def _remove(ledger: Ledger, path: Path, burial: Burial) -> _Gone:
    """Take a file away without losing it. Raises DecisionRefused where the disk does not let it go."""
    shown, tracked = ledger.shown(path), is_tracked(path)
    left = f"{burial.name} is deleted, but {shown} could not be taken away"
    with told(left, f"labkit delete {burial.name} --why ..."):
        if is_unchanged(path):
            remove(path)
            return _Gone(shown, None, tracked)
        return _Gone(shown, _set_aside(ledger.root, path, burial), tracked)


def _set_aside(root: Path, path: Path, burial: Burial) -> Path:
    folder = root / ASIDE
    make_folder(folder)
    target = next(place for place in _places(folder, path) if not os.path.lexists(place))
    replace_text(
        _note_of(target),
        f"{path.name} of the experiment {burial.name}, deleted on {burial.decided_at}: {burial.why}\n"
        "It was not in git as it stood here, so it was set aside. No labkit command reads it.\n",
    )
    move_new(path, target)
    return target.relative_to(root)


def _note_of(target: Path) -> Path:
    """Where it is said why a file lies there; a notebook's note is not that of the file beside it."""
    return target.with_suffix(".txt") if target.suffix == ".py" else target.with_name(f"{target.name}.txt")


def _places(folder: Path, path: Path) -> Iterator[Path]:
    yield folder / path.name
    for number in count(2):
        yield folder / f"{path.stem}-{number}{path.suffix}"


def _lines(burial: Burial, gone: list[_Gone]) -> Iterator[tuple[str, str]]:
    yield "outcome", burial.outcome
    yield "graveyard", "experiments/GRAVEYARD.md has its line"
    if burial.withdrawn:
        yield "recipe", 'withdrawn: Arm(..., recipe="auto") no longer picks it up'
    for file in gone:
        where = f"moved to {file.aside.as_posix()}" if file.aside else "removed; git holds it"
        yield "notebook" if file.shown.endswith(".ipynb") else "file", f"{file.shown} {where}"
    records = "1 record stays" if len(burial.evidence) == 1 else f"{len(burial.evidence)} records stay"
    yield "kept", f"{records}; its arms can be run as they are"
    yield "commit", f"git add -A {shlex.join(_changed(burial, gone))}"


def _changed(burial: Burial, gone: list[_Gone]) -> Iterator[str]:
    """The files that the deletion changed, as far as git can add them."""
    yield "experiments/GRAVEYARD.md"
    if burial.withdrawn:
        yield "experiments/promoted.toml"
    for file in gone:
        if file.tracked:
            yield file.shown
        if file.aside:
            yield from (file.aside.as_posix(), _note_of(file.aside).as_posix())
