"""Run journal: what a run writes down as it goes. `restored` makes findings of it again."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from labkit.bench.pairs import ROLES, Role
from labkit.bench.quiet import Probe
from labkit.core.canonical import plain
from labkit.core.events import Note, Sink
from labkit.core.records import VisitResult
from labkit.lab.experiment import ExperimentFile
from labkit.lab.measuring.findings import Findings
from labkit.lab.measuring.journal_shape import FORMAT
from labkit.model.quality import WindowScore
from labkit.store.journal import FileJournal, create_journal, journals_folder


class RunJournal:
    """The journal of one run. Where it cannot be written the run goes on, and a note says what that costs."""

    def __init__(
        self, root: Path, sink: Sink, now: Callable[[], datetime], journal: FileJournal | None = None
    ) -> None:
        """journal: of the run to go on with; None makes one at the beginning."""
        self._root, self._sink, self._now, self._journal = root, sink, now, journal
        self._lost, self._begun = False, journal is not None

    def begin(self, findings: Findings) -> None:
        """Write what the run is, before anything is measured that would be worth going on with."""
        try:
            if self._journal is None:
                folder = journals_folder(self._root)
                self._journal = create_journal(folder / f"{findings.journal_id}.jsonl")
        except OSError as error:
            self._lose(error)
        self._add("header", _header(findings, self._root))
        self._begun = not self._lost
        for role in ROLES:
            self._add("opened", {"role": role, "answer": findings.measured.opened[role]})
        for text in findings.notes:
            self._add("note", {"text": text})
        self._add("windows", {"text_hash": findings.text_hash, "windows_hash": findings.windows_hash})
        self.standing(findings.measured.standing)

    @property
    def whole(self) -> bool:
        """Whether all that was to be written is written, so that another process can go on from it."""
        return self._journal is not None and not self._lost

    def standing(self, probes: Sequence[Probe]) -> None:
        self._add("standing", {"probes": [probe.to_json() for probe in probes]})

    def resumed(self, resumption: Mapping[str, Any]) -> None:
        self._add("resumed", dict(resumption))

    def ceilings(self, role: Role, card: Mapping[str, Any]) -> None:
        self._add("ceilings", {"role": role, "card": dict(card)})

    def parity(self, role: Role, answer: Mapping[str, Any]) -> None:
        self._add("parity", {"role": role, "answer": dict(answer)})

    def look(self, look: Mapping[str, Any]) -> None:
        self._add("look", {"look": dict(look)})

    def visit(self, visit: VisitResult) -> None:
        self._add("visit", {"visit": asdict(visit)})

    def score(self, score: WindowScore) -> None:
        self._add("score", {"score": score.to_json()})

    def sealed(self, run_id: str, path: Path, why: str) -> None:
        """Say which record holds the run now. why: what ended it, empty where it is complete."""
        where = path.relative_to(self._root).as_posix() if path.is_relative_to(self._root) else path.name
        self._add("sealed", {"run_id": run_id, "path": where, "why": why})

    def rescued(self, path: Path) -> None:
        """Say where the complete record lies, since results/ did not take it."""
        self._add("rescued", {"path": str(path)})

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for the while, beside the journal, so that the next run removes what a killed one left."""
        beside = self._journal is not None and not self._lost
        folder = scratch_folder(self._journal.path) if self._journal and beside else None
        made = Path(tempfile.mkdtemp(prefix="labkit-score-")) if folder is None else folder
        try:
            made.mkdir(exist_ok=True)
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def remove(self) -> None:
        """Remove the journal: nothing is left to go on with."""
        if self._journal is not None:
            try:
                self._journal.remove()
            except OSError as error:
                self._sink(Note(f"a journal that is of no more use was left: {_reason(error)}"))

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def _add(self, kind: str, data: Mapping[str, Any]) -> None:
        if self._lost or self._journal is None:
            return
        try:
            at = self._now().isoformat(timespec="microseconds")
            self._journal.append(kind, {**plain(data), "at": at})
        except (OSError, ValueError, TypeError) as error:
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        self._lost = True
        after = "would be resumed from here on" if self._begun else "could not be resumed"
        text = f"the run goes on, but {after} after a stop: its journal cannot be written"
        self._sink(Note(f"{text}: {_reason(error)}"))


def scratch_folder(journal: Path) -> Path:
    """Where the run of a journal keeps what it needs for the moment only."""
    return journal.with_suffix(".scratch")


def _header(findings: Findings, root: Path) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "journal_id": findings.journal_id,
        "experiment": findings.file.experiment.identity(),
        "file": file_name(findings.file, root),
        "source_hash": findings.file.source_hash,
        "pairs": findings.pairs,
        "started": findings.started.isoformat(),
        "provenance": findings.provenance,
        "machine": findings.machine,
        "floor": findings.floor.to_json(findings.pairs) if findings.floor else {},
    }


def file_name(file: ExperimentFile, root: Path) -> str:
    """An experiment's file as it is named from the lab that it lies in; empty where a notebook holds it."""
    if not file.source_hash:
        return ""
    whole, lab = file.path.resolve(), root.resolve()
    return whole.relative_to(lab).as_posix() if whole.is_relative_to(lab) else str(whole)


def resume_command(file: str) -> str:
    """How to go on with the run of an experiment, by its file as `file_name` names it."""
    return f"labkit run {shlex.quote(file)} --resume" if file else "labkit.run(experiment, resume=True)"


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
