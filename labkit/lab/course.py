"""Course: one run on its way, from open workers to the last score. Writes its journal, and no record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from labkit.bench.pairs import ROLES
from labkit.core.errors import JournalInvalid
from labkit.core.events import Note, Sink
from labkit.engine.shield import uninterrupted
from labkit.evals.text import Text
from labkit.lab.experiment import ScoreText
from labkit.lab.findings import Findings
from labkit.lab.measure import Bench
from labkit.lab.quality import check_comparable, score_windows, score_workers
from labkit.lab.run_journal import RunJournal
from labkit.model.windows import Windows


@dataclass(frozen=True, slots=True)
class Edge:
    """What a run touches outside itself: the lab's folder, who watches, the clock and the environment."""

    place: Path
    sink: Sink
    now: Callable[[], datetime]
    environ: Mapping[str, str]


@dataclass
class Course:
    """One run on its way. resumption: what is to be said of this going on, None for a new run."""

    findings: Findings
    journal: RunJournal
    edge: Edge
    elapsed_s: float = 0.0
    resumption: dict[str, Any] | None = None


def measure(course: Course, text: Text | None) -> None:
    """Measure and score what is missing, writing the journal from the moment that both arms are open.

    text: what to score on, where quality is claimed. Raises WorkerFailed where an arm cannot run and
    JournalInvalid where an arm or the text is no longer what the run began with.
    """
    findings, experiment, measured = (
        course.findings,
        course.findings.file.experiment,
        course.findings.measured,
    )
    bench = Bench(
        experiment, measured, course.edge.sink, course.edge.environ, course.journal.visit, course.elapsed_s
    )
    with bench:
        before = len(measured.standing)
        bench.open()
        windows = _windows(findings, text, experiment.score, bench) if text and experiment.score else None
        _open_journal(course, before)
        _ceilings(course, bench)
        bench.run(findings.pairs)
        if windows is not None:
            _score(course, bench, windows)


def _open_journal(course: Course, probes_before: int) -> None:
    findings = course.findings
    with uninterrupted():
        if course.resumption is None:
            course.journal.begin(findings)
        else:
            course.journal.resumed(course.resumption)
            course.journal.standing(findings.measured.standing[probes_before:])
            findings.resumed.append(course.resumption)


def _ceilings(course: Course, bench: Bench) -> None:
    """Cost cards with measured ceilings, kept over resumptions."""
    cards = course.findings.rooflines
    if len(cards) < len(ROLES):
        for role, card in bench.rooflines().items():
            cards[role] = card
            course.journal.ceilings(role, card)
    for role, card in cards.items():
        if card:
            arm, artifact = bench.arm(role), course.findings.measured.opened[role]["artifact"]
            course.edge.sink(Note(f"{role} {arm.label(artifact['dtype'])}\n{card['card']}"))


def _score(course: Course, bench: Bench, windows: Windows) -> None:
    """Score each window; a result is kept as it comes, so an interruption or a kill loses none."""
    scores, clients = course.findings.scores, (bench.client("baseline"), bench.client("candidate"))
    with course.journal.scratch() as scratch:
        for score in score_workers(*clients, windows, scratch, course.edge.sink, len(scores)):
            with uninterrupted():
                scores.append(score)
                course.journal.score(score)


def _windows(findings: Findings, text: Text, spec: ScoreText, bench: Bench) -> Windows:
    """Cut the text before any visit, so that what cannot be scored is refused before it is measured."""
    opened = findings.measured.opened
    check_comparable(opened, spec)
    windows = score_windows(text, spec, bench.client("baseline"), opened["baseline"])
    found = text.hash(), windows.hash()
    if findings.windows_hash and found != (findings.text_hash, findings.windows_hash):
        need = f"the text {text.name!r} that the unfinished run is scored on was needed, unchanged"
        raise JournalInvalid(need, got="another one now", next_step="run it anew, without --resume")
    findings.text_hash, findings.windows_hash = found
    return windows
