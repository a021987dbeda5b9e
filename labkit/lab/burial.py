"""Burial: an experiment is deleted, open or promoted; its line in the graveyard stays, and so do its records.

The line is written first, then the recipe is withdrawn, then the file goes: what is torn is ended by deleting
again. A file that git does not hold as it is moves aside, so that nothing is lost.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from labkit.core.decision import Burial, Decision
from labkit.core.errors import DecisionRefused
from labkit.engine.shield import uninterrupted
from labkit.lab.decided import Decided
from labkit.lab.ledger import LabFile, Ledger, lab_root, read_ledger
from labkit.lab.refusal import refused, unsaid, unwritable
from labkit.lab.running import remove_journals, seal_killed, unmeasured
from labkit.lab.runs import runs_of
from labkit.store.decisions import deciding
from labkit.store.durable import make_folder, remove, replace_text, sync_folder
from labkit.store.graveyard import add_burial
from labkit.store.recipes import remove_recipe

NOT_MEASURED = "not measured"
ASIDE = Path("results") / "set-aside" / "experiments"


@dataclass(frozen=True, slots=True)
class _Gone:
    """What became of the file. aside: where it lies now, None where git holds it."""

    shown: str
    aside: Path | None


def delete(name: str, *, why: str, root: str | Path | None = None, today: date | None = None) -> Decided:
    """Delete an experiment: open, expired or promoted, whose recipe is then withdrawn; also a broken file.

    name: the experiment's, or the file's without `.py` where it does not load. root: the lab; None takes the
    nearest folder upwards with experiments/. Where a deletion was torn, this ends it. Records and arms stay;
    what a killed run left is sealed into one first.
    Raises DecisionRefused with every reason, RecipeInvalid where a file of decisions is broken.
    """
    place, day = lab_root(root), (today or datetime.now(UTC).date()).isoformat()
    with deciding(place):
        seal_killed(place)
        ledger = read_ledger(place)
        files = _files(ledger, name)
        reasons = [*unsaid(why), *unwritable("name", name), *unmeasured(place, name)]
        if ledger.burial(name) and not torn_burial(ledger, name):
            reasons.append(f"state: an open or promoted experiment is needed, got {ledger.decided(name)}")
        if reasons:
            raise refused(name, "deleted", reasons)
        burial = ledger.burial(name) or _burial(ledger, name, files, why.strip(), day)
        with uninterrupted():
            if ledger.burial(name) is None:
                add_burial(place, burial)
            if ledger.recipe(name):
                remove_recipe(place, name)
            gone = [_remove(ledger, file.path, burial) for file in files]
            remove_journals(place, name)
    decision = Decision("deleted", name, burial.decided_at, burial.why, burial.outcome, burial.evidence)
    return Decided(decision, None, tuple(_lines(burial, gone)))


def torn_burial(ledger: Ledger, name: str) -> bool:
    """Whether a name is in the graveyard and something of the experiment is still there."""
    left = ledger.recipe(name) or ledger.files(name) or ledger.kept_file(name)
    return ledger.burial(name) is not None and bool(left)


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
    return Burial(name, claim, outcome, why, day, evidence, withdrawn=ledger.recipe(name) is not None)


def _remove(ledger: Ledger, path: Path, burial: Burial) -> _Gone:
    """Take a file away without losing it. Raises DecisionRefused where the disk does not let it go."""
    shown = ledger.shown(path)
    try:
        if _in_git(path):
            remove(path)
            return _Gone(shown, None)
        return _Gone(shown, _set_aside(ledger.root, path, burial))
    except OSError as error:
        raise DecisionRefused(
            f"{burial.name} is deleted, but {shown} could not be taken away",
            got=error.strerror or str(error),
            next_step=f"mend permissions or free some space, then: labkit delete {burial.name} --why ...",
        ) from error


def _in_git(path: Path) -> bool:
    """Whether the newest commit holds the file byte for byte, so that removing it loses nothing."""
    command = ["git", "-C", os.fspath(path.parent), "show", f"HEAD:./{path.name}"]
    try:
        shown = subprocess.run(command, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return shown.returncode == 0 and shown.stdout == path.read_bytes()


def _set_aside(root: Path, path: Path, burial: Burial) -> Path:
    folder = root / ASIDE
    make_folder(folder)
    target = next(place for place in _places(folder, path.stem) if not os.path.lexists(place))
    replace_text(
        target.with_suffix(".txt"),
        f"{path.name} of the experiment {burial.name}, deleted on {burial.decided_at}: {burial.why}\n"
        "It was not in git as it stood here, so it was set aside. No labkit command reads it.\n",
    )
    shutil.move(path, target)
    sync_folder(folder)
    sync_folder(path.parent)
    return target.relative_to(root)


def _places(folder: Path, stem: str) -> Iterator[Path]:
    yield folder / f"{stem}.py"
    number = 2
    while True:
        yield folder / f"{stem}-{number}.py"
        number += 1


def _lines(burial: Burial, gone: list[_Gone]) -> Iterator[tuple[str, str]]:
    yield "outcome", burial.outcome
    yield "graveyard", "experiments/GRAVEYARD.md has its line"
    if burial.withdrawn:
        yield "recipe", 'withdrawn: Arm(..., recipe="auto") no longer picks it up'
    for file in gone:
        where = f"moved to {file.aside.as_posix()}" if file.aside else "removed; git holds it"
        yield "file", f"{file.shown} {where}"
    records = "1 record stays" if len(burial.evidence) == 1 else f"{len(burial.evidence)} records stay"
    yield "kept", f"{records}; its arms can be run as they are"
    aside = f" {ASIDE.as_posix()}" if any(file.aside for file in gone) else ""
    yield "commit", f"git add -A experiments{aside}"
