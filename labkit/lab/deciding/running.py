"""Running: what is measured at this moment, what killed runs left and what is damaged of an experiment.

Knows why nothing can be decided yet; not what is decided.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from labkit.core.errors import JournalInvalid
from labkit.lab.measuring.findings import name_in
from labkit.lab.measuring.unfinished import seal_orphans
from labkit.store import query
from labkit.store.journal import journal_files, open_journal
from labkit.store.lock import take_lock

MEND = "take it back from git, or labkit store set-aside"


def running(root: Path) -> frozenset[str]:
    """The names of the experiments of a lab whose journal is held by a living run."""
    return frozenset(name_in(path.stem) for path in journal_files(root) if _is_held(path))


def journals_of(root: Path, name: str) -> tuple[Path, ...]:
    """The journals of an experiment, oldest first, whoever holds them and whatever state they are in."""
    return tuple(path for path in journal_files(root) if name_in(path.stem) == name)


def unmeasured(root: Path, name: str) -> Iterator[str]:
    """Why an experiment cannot be decided yet: a run that goes on, and records that cannot be read."""
    if name in running(root):
        yield f"run: one that has ended is needed, got one of {name} that goes on; wait for it, or stop it"
    for path, reason in damaged_of(root, name):
        yield f"records: whole ones are needed, got {path}, which is damaged ({reason}); {MEND}"


def damaged_of(root: Path, name: str) -> Iterator[tuple[str, str]]:
    """The damaged records of an experiment by their names: path below the lab root, and reason."""
    for row in query.damaged(root).to_dict("records"):
        path = str(row["path"])
        if path.startswith("results/") and name_in(Path(path).stem) == name:
            yield path, str(row["reason"])


def seal_killed(root: Path) -> None:
    """Seal what killed runs left, so that a decision rests on all that was measured."""
    seal_orphans(root, lambda _: None, lambda: datetime.now(UTC))


def remove_journals(root: Path, name: str) -> None:
    """Remove the journals of an experiment that nobody goes on with; a damaged or held one stays."""
    for path in journals_of(root, name):
        with suppress(OSError, JournalInvalid):
            journal = open_journal(path)
            if journal is not None:
                journal.remove()


def _is_held(path: Path) -> bool:
    try:
        # A FIFO in a journal's place would wait for its writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return take_lock(handle) == "busy"
    finally:
        os.close(handle)
