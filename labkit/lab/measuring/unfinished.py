"""Unfinished: runs that stopped before their end, as their journals tell them. Seals what a kill left."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from labkit.core.errors import JournalInvalid, LabkitError, RecordInvalid
from labkit.core.events import Note, Sink
from labkit.core.records import Record
from labkit.lab.experiment import ExperimentFile
from labkit.lab.measuring.assemble import assemble
from labkit.lab.measuring.findings import Findings
from labkit.lab.measuring.restored import Restored, restore, restore_prefix
from labkit.lab.measuring.run_journal import file_name, resume_command, scratch_folder
from labkit.store import durable
from labkit.store.journal import (
    FileJournal,
    journal_files,
    journals_folder,
    open_journal,
    read_entries,
    read_prefix,
)
from labkit.store.read import read_record
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
    def is_control(self) -> bool:
        """Whether it measured the bench; such a run is made anew and not gone on with."""
        return self.restored.findings.file.experiment.control

    @property
    def file(self) -> str:
        """The experiment's file as it is named from the lab; empty where a notebook holds it."""
        findings = self.restored.findings
        return findings.file.path.as_posix() if findings.file.source_hash else ""

    def is_of(self, file: ExperimentFile, root: Path) -> bool:
        """Whether an experiment file of the lab, or an experiment of a notebook, is what began it."""
        return self.name == file.experiment.name and self.file == file_name(file, root)

    def place(self, root: Path) -> Path | None:
        """Where its experiment file lies, promoted or not; None where it is gone or a notebook holds it."""
        path = root / self.file
        places = (path, path.parent / "promoted" / f"{self.name}.py")
        return next((each for each in places if each.is_file()), None) if self.file else None

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
            if found and found.restored.findings.measured.any() and not _is_over(found.restored, root):
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


def rescued(root: Path, name: str) -> JournalInvalid | None:
    """Why a run is not to be gone on with, where its complete record lies elsewhere; None where none does."""
    told = None
    for path in journal_files(root):
        with suppress(OSError, JournalInvalid):
            entries = read_entries(path)
            found = restore(entries, path.name) if entries else None
            if found and found.rescued and not _is_complete(found, root):
                told = _elsewhere(path, found) if found.findings.file.experiment.name == name else told
    return told


def _elsewhere(journal: Path, restored: Restored) -> JournalInvalid:
    return JournalInvalid(
        f"the complete record of {journal.stem} was needed in results/{restored.findings.machine['slug']}/",
        got=f"{restored.rescued}, where it was kept",
        next_step="move it there, then: labkit store rebuild",
    )


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
    for number in itertools.count(len(findings.resumed) + 1):
        record = replace(record, run_id=f"{findings.journal_id}-part{number}")
        path = record_path(record, root)
        if not path.exists():
            return record, path, True
        if _holds(path, record):
            return record, path, False
    raise AssertionError("numbers do not end")


def _holds(path: Path, record: Record) -> bool:
    """Whether a record that is there has all that another one would have, so that this need not be written.

    It may have more: what a damaged journal tells of a run ends before its damage.
    """
    try:
        there = read_record(path)
    except RecordInvalid:
        return False
    count = len(record.visits)
    same = there.journal_id == record.journal_id and there.visits[:count] == record.visits
    return same and (len(there.visits) > count or there.quality == record.quality or not record.quality)


def remove_older(root: Path, file: ExperimentFile, journal_id: str) -> None:
    """Remove the journals of the other runs of an experiment, whose partial records stay.

    Those alone that the same file began, as it is now: another one of that name is another's work.
    """
    for found in unfinished(root):
        same = found.is_of(file, root) and found.restored.findings.file.source_hash == file.source_hash
        if same and found.path.stem != journal_id and found.restored.sealed:
            with suppress(OSError, JournalInvalid):
                journal = open_journal(found.path)
                if journal is not None:
                    journal.remove()


def _seal_file(path: Path, root: Path, now: Callable[[], datetime]) -> Path | None:
    try:
        journal = open_journal(path)
        if journal is None:  # its run lives
            return None
        with closing(journal):
            shutil.rmtree(scratch_folder(path), ignore_errors=True)
            return _seal_journal(journal, root, now)
    except JournalInvalid as error:
        sealed = _seal_prefix(path, root)
        if sealed is None:
            raise
        record, new = sealed
        if new:
            return record
        got = f"{error.got}; what came before that is kept in {record}"
        raise JournalInvalid(error.need, got=got, next_step=error.next_step) from error


def _seal_prefix(path: Path, root: Path) -> tuple[Path, bool] | None:
    """The partial record of what a damaged journal tells before its damage, and whether it is a new one.

    None where it tells of nothing measured. The journal is left as it is, and nobody can go on with it.
    """
    restored = restore_prefix(read_prefix(path))
    if restored is None or _is_over(restored, root) or not restored.findings.measured.any():
        return None
    note = f"its journal was damaged at line {restored.damaged}: what came after that is not in this record"
    restored.findings.notes.append(note)
    record, place, new = _seal_restored(restored, root)
    if new:
        write_record(record, root)
    return place, new


def _seal_restored(restored: Restored, root: Path) -> tuple[Record, Path, bool]:
    """`seal_partial` of a journal that says what no run would. Raise JournalInvalid for that."""
    findings = restored.findings
    try:
        return seal_partial(findings, root, restored.last_at)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        need = f"the journal of a run was needed in results/journals/{findings.journal_id}.jsonl"
        raise JournalInvalid(need, got=f"{type(error).__name__}: {error}") from error


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
    if restored.rescued:
        raise _elsewhere(journal.path, restored)
    if restored.sealed:
        return None
    record, path, new = _seal_restored(restored, root)
    if new:
        write_record(record, root)
    where = path.relative_to(root).as_posix()
    sealed = {"run_id": record.run_id, "path": where, "why": "killed", "at": now().isoformat()}
    journal.append("sealed", sealed)
    return path if new else None


def _is_over(restored: Restored, root: Path) -> bool:
    return bool(restored.rescued) or _is_complete(restored, root)


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
