"""Course: one run on its way, from open workers to the last score. Writes its journal, and no record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from labkit.bench.pairs import ROLES
from labkit.core.errors import JournalInvalid
from labkit.core.events import Note, Progress, Sink
from labkit.engine.shield import uninterrupted
from labkit.evals.text import Text
from labkit.lab.experiment import ScoreText
from labkit.lab.measuring.findings import Findings
from labkit.lab.measuring.looks import next_look, planned_looks, stopped
from labkit.lab.measuring.measure import Bench
from labkit.lab.measuring.quality import Scoring, check_comparable, score_windows
from labkit.lab.measuring.run_journal import RunJournal
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
    edge, run_id = course.edge, findings.journal_id
    keep = course.journal.visit
    bench = Bench(experiment, measured, edge.sink, edge.environ, keep, course.elapsed_s, run_id=run_id)
    with bench:
        before = len(measured.standing)
        bench.open()
        windows = _windows(findings, text, experiment.score, bench) if text and experiment.score else None
        _open_journal(course, before)
        _each_arm(course, bench)
        _visits(course, bench)
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


def _each_arm(course: Course, bench: Bench) -> None:
    """Cost cards with measured ceilings, and whose bits each arm equals; both kept over resumptions."""
    findings, sink = course.findings, course.edge.sink
    for done, role in enumerate(ROLES):
        if role not in findings.rooflines:
            sink(Progress("ceilings", done, 2, bench.arm(role).label()))
            findings.rooflines[role] = bench.ask(role, "roofline")
            course.journal.ceilings(role, findings.rooflines[role])
        if role not in findings.parity and not findings.file.experiment.control:
            sink(Progress("parity", done, 2, bench.arm(role).label()))
            findings.parity[role] = bench.ask(role, "parity")
            course.journal.parity(role, findings.parity[role])
        if card := findings.rooflines[role]:
            label = bench.arm(role).label(findings.measured.opened[role]["artifact"]["dtype"])
            sink(Note(f"{role} {label}\n{card['card']}"))


def _visits(course: Course, bench: Bench) -> None:
    """Make the visits up to each look, and stop at the first that decides every axis that visits measure.

    Looks of an earlier process count: a run that goes on does not look twice at the same visits.
    """
    findings = course.findings
    planned = planned_looks(findings)
    while not stopped(findings):
        bench.run(planned[len(findings.looks)], planned[-1])
        look = next_look(findings)
        with uninterrupted():
            findings.looks.append(look)
            course.journal.look(look)


def _score(course: Course, bench: Bench, windows: Windows) -> None:
    """Score each window; a result is kept as it comes, so an interruption or a kill loses none."""
    scores = course.findings.scores
    together = course.findings.file.experiment.design == "process-pair"
    with course.journal.scratch() as scratch:
        scoring = Scoring(bench.client, windows, scratch, 1 if together else len(windows))
        for score in scoring.scores(course.edge.sink, len(scores)):
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
