"""The power goes after any operation of a decision: it is made or can be, and nothing is lost."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from labkit.core.errors import DecisionRefused
from labkit.lab.deciding import promotion
from labkit.lab.deciding.burial import delete
from labkit.lab.deciding.ledger import read_ledger
from labkit.lab.deciding.promotion import promote
from labkit.lab.deciding.reopening import end_reopening, reopen
from labkit.store.durable import write_new
from labkit.store.read import read_records
from labkit.store.recipes import read_recipes
from labkit.store.write import write_record
from tests.unit.decided_lab import EXPERIMENT, NAME, TODAY, open_lab, record_of
from tests.unit.power_cut import LOSSES, Operation, Recorder, every_moment, lay
from tests.unit.sample_records import SLUG

Found = dict[str, bytes | None]
Decide = Callable[[Path], object]


def promoting(root: Path) -> object:
    return promote(NAME, why="memory is short", root=root, today=TODAY, machine=SLUG)


def deleting(root: Path) -> object:
    return delete(NAME, why="it is not worth it", root=root, today=TODAY)


def reopening(root: Path) -> object:
    """Open it again; where that was torn, or is made, end it."""
    ended = end_reopening(root, NAME)
    if ended is not None or not read_recipes(root):
        return ended
    return reopen(root, read_recipes(root)[0], why="it lost", evidence=("a-run",), today=TODAY)


@dataclass(frozen=True)
class Cut:
    """What could lie on the disk, and which decisions had been said to be made by then."""

    found: Found
    decided: int
    where: str


@pytest.fixture(autouse=True)
def unopposed(sample_code: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing speaks against the record."""
    monkeypatch.setattr(promotion, "objections", lambda _: ())


def recorded(folder: Path, decisions: list[Decide], *, git: bool) -> list[Operation]:
    """Everything done to the files of a lab from its making on, with a mark after that and each decision."""
    root = folder / "recorded"
    record = record_of(open_lab(folder / "model"))
    recorder = Recorder(root)
    with recorder.recording():
        root.mkdir()
        write_new(root / "experiments" / f"{NAME}.py", EXPERIMENT)
        write_record(record, root)
        if git:
            commit(root)
        recorder.mark("lab")
        for decide in decisions:
            decide(root)
            recorder.mark("decided")
    return recorder.operations


def commit(root: Path) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    for words in (("init", "-q"), ("add", "-A"), (*who, "commit", "-q", "-m", "a")):
        subprocess.run(["git", "-C", str(root), *words], check=True)


def cuts(operations: list[Operation], since: int) -> list[Cut]:
    """Every different thing that could lie there since so many decisions were made, however much was lost."""
    seen: dict[str, Cut] = {}
    for number, disk in enumerate(every_moment(operations)):
        for loss in LOSSES if len(disk.marks) > since else ():
            found, decided = disk.after(loss), len(disk.marks) - 1
            key = repr((sorted(found.items()), decided))
            seen[key] = Cut(found, decided, f"operation {number}, losing {loss}")
    return list(seen.values())


def laid(cut: Cut, folder: Path) -> Path:
    root = folder / "lab"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    lay(cut.found, root)
    return root


def state(root: Path) -> tuple[str, bool]:
    """What is decided of the experiment, in words, and whether its own file is kept as a promoted one."""
    ledger = read_ledger(root)
    again = " again" if ledger.reopening(NAME) else ""
    return ledger.decided(NAME) or f"open{again}", ledger.kept_file(NAME) is not None


def texts(root: Path) -> list[str]:
    """Where the experiment's text lies whole."""
    found = (path for path in root.rglob("*.py") if path.read_text() == EXPERIMENT)
    return sorted(path.relative_to(root).as_posix() for path in found)


@pytest.mark.parametrize(
    ("decisions", "git"),
    [
        ([promoting], False),
        ([deleting], False),
        ([deleting], True),
        ([promoting, deleting], False),
        ([promoting, reopening], False),
    ],
    ids=["promoted", "deleted and set aside", "deleted and in git", "promoted, then deleted", "reopened"],
)
def test_a_decision_is_made_or_can_be_ended(tmp_path: Path, decisions: list[Decide], git: bool) -> None:
    found = cuts(recorded(tmp_path, decisions, git=git), since=len(decisions) - 1)
    end = state(laid(found[-1], tmp_path))
    assert len(found) > 6 and end[0] != "open"
    for cut in found:
        root = laid(cut, tmp_path)
        assert len(read_records(root).records) == 1, cut.where
        assert git or texts(root), cut.where
        if cut.decided:
            assert state(root)[0] != "open", cut.where
        for decide in decisions[cut.decided :]:
            with contextlib.suppress(DecisionRefused):  # it is made already
                decide(root)
        assert state(root) == end, cut.where
        lies = [f"experiments/promoted/{NAME}.py"] if end[1] else []
        lies += [f"experiments/{NAME}.py"] if end[0].startswith("open") else []
        assert [name for name in texts(root) if name.startswith("experiments/")] == lies, cut.where
        assert not list((root / "experiments").rglob(".*.tmp")), cut.where
