"""Unfinished: runs that stopped before their end, as their journals tell them. Seals what a kill left."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from labkit.core.errors import JournalInvalid, LabkitError
from labkit.core.events import Note, Sink
from labkit.core.records import Record
from labkit.lab.assemble import assemble
from labkit.lab.findings import Findings
from labkit.lab.restored import Restored, restore
from labkit.lab.run_journal import resume_command, scratch_folder
from labkit.store import durable
from labkit.store.journal import FileJournal, journal_files, journals_folder, open_journal, read_entries
from labkit.store.write import record_path, write_record


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that can be gone on with, and the path of its journal."""

    path: Path
    restored: Restored

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.restored.findings.file.experiment.name

    @property
    def file(self) -> str:
        """The experiment's file as it is named from the lab; empty where a notebook holds it."""
        findings = self.restored.findings
        return findings.file.path.as_posix() if findings.file.source_hash else ""

    def progress(self) -> str:
        """How far it came, as a phrase."""
        findings = self.restored.findings
        return f"{len(findings.measured.ok_pairs())} of {findings.pairs} pairs"

    def command(self) -> str:
        """How to go on with it."""
        return resume_command(self.file)


def unfinished(root: Path) -> tuple[Unfinished, ...]:
    """The runs of a lab that measured something and have no complete record, oldest first.

    One that is running at this moment is among them. Damaged journals are left out: see `damaged`.
    """
    return tuple(_found(root))


def _found(root: Path) -> Iterator[Unfinished]:
    for path in journal_files(root):
        with suppress(OSError, JournalInvalid):
            entries = read_entries(path)
            found = Unfinished(path, restore(entries, path.name)) if entries else None
            if found and found.restored.findings.measured.any() and not _is_complete(found.restored, root):
                yield found


def damaged(root: Path) -> dict[str, JournalInvalid]:
    """The journals of a lab that cannot be gone on with: id -> why."""
    found = {}
    for path in journal_files(root):
        try:
            entries = read_entries(path)
            if entries:
                restore(entries, path.name)
        except JournalInvalid as error:
            found[path.stem] = error
        except OSError as error:
            need = f"a readable journal was needed in {path}"
            found[path.stem] = JournalInvalid(need, got=error.strerror)
    return found


def seal_orphans(root: Path, sink: Sink, now: Callable[[], datetime], *, spare: str = "") -> tuple[Path, ...]:
    """Seal each run that was killed into a partial record, once, whoever asks at the same time.

    Removes what such runs left for the moment only. A journal that cannot be read or sealed is named in a
    note and stays. spare: the id of a journal to leave alone. Returns the paths of the new records.
    """
    sealed = []
    for path in journal_files(root):
        if path.stem == spare:
            continue
        try:
            record = _seal_file(path, root, now)
        except (LabkitError, OSError) as error:
            sink(Note(f"a killed run could not be sealed: {_one_line(error)}"))
            continue
        if record is not None:
            sink(Note(f"a run that was killed is kept, as far as it came, in {record}"))
            sealed.append(record)
    _clear(root)
    return tuple(sealed)


def seal_partial(findings: Findings, root: Path, ended: datetime) -> tuple[Record, Path, bool]:
    """The partial record of a run with its path, and whether it is yet to be written."""
    record = assemble(findings, "partial", ended, root)
    path = record_path(record, root)
    return record, path, not path.exists()


def remove_older(root: Path, name: str, journal_id: str) -> None:
    """Remove the journals of the other runs of an experiment, whose partial records stay."""
    for found in unfinished(root):
        if found.name == name and found.path.stem != journal_id and found.restored.sealed:
            with suppress(OSError, JournalInvalid):
                journal = open_journal(found.path)
                if journal is not None:
                    journal.remove()


def _seal_file(path: Path, root: Path, now: Callable[[], datetime]) -> Path | None:
    journal = open_journal(path)
    if journal is None:  # its run lives
        return None
    with closing(journal):
        shutil.rmtree(scratch_folder(path), ignore_errors=True)
        return _seal_journal(journal, root, now)


def _seal_journal(journal: FileJournal, root: Path, now: Callable[[], datetime]) -> Path | None:
    """Under the journal's lock, and made again at will: whichever step a crash came before, it is taken."""
    if not journal.entries():
        journal.remove()
        return None
    restored = restore(journal.entries(), journal.path.name)
    findings = restored.findings
    if _is_complete(restored, root) or not findings.measured.any():
        journal.remove()
        return None
    if restored.sealed:
        return None
    record, path, new = seal_partial(findings, root, restored.last_at)
    if new:
        write_record(record, root)
    where = path.relative_to(root).as_posix()
    sealed = {"run_id": record.run_id, "path": where, "why": "killed", "at": now().isoformat()}
    journal.append("sealed", sealed)
    return path if new else None


def _is_complete(restored: Restored, root: Path) -> bool:
    """Whether the run was killed, or its disk full, between its complete record and its journal's end."""
    findings = restored.findings
    return (root / "results" / findings.machine["slug"] / f"{findings.run_id('complete')}.json").exists()


def _clear(root: Path) -> None:
    """Remove the rest that a kill leaves of one write, and scratch folders that belong to no journal."""
    with suppress(OSError):
        for folder in (root / "results").glob("[!.]*/"):
            durable.sweep(folder)
        for scratch in journals_folder(root).glob("*.scratch"):
            if not scratch.with_suffix(".jsonl").exists():
                shutil.rmtree(scratch, ignore_errors=True)


def _one_line(error: Exception) -> str:
    if isinstance(error, LabkitError):
        step = f"; {error.next_step}" if error.next_step else ""
        return f"{error.need}: {error.got}{step}"
    return ": ".join(str(part) for part in (getattr(error, "filename", None), error) if part)
