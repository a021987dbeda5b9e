"""Run an experiment: measure, score, judge, and write one record. Only `lab` writes records.

A run writes a journal as it goes: where one was stopped or killed, another can go on from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path

from labkit.bench.lease import device_lease, lease_path
from labkit.bench.pairs import ROLES
from labkit.core.errors import JournalInvalid, LabkitError, RecipeInvalid
from labkit.core.events import Note, Sink
from labkit.core.records import Record
from labkit.engine.shield import uninterrupted
from labkit.evals.text import Text, load_text
from labkit.lab.deciding.ledger import expiry_of
from labkit.lab.experiment import Experiment, ExperimentFile, load_experiment
from labkit.lab.measuring.assemble import assemble
from labkit.lab.measuring.course import Course, Edge, measure
from labkit.lab.measuring.findings import Findings, new_journal_id
from labkit.lab.measuring.finished import Finished
from labkit.lab.measuring.keep import ResultsUnwritable, check_room, keep_record, refresh_index
from labkit.lab.measuring.provenance import machine_class, provenance
from labkit.lab.measuring.resume import (
    check_same,
    elapsed_s,
    newest_unfinished,
    only_unfinished,
    resumption,
    take_over,
)
from labkit.lab.measuring.run_journal import RunJournal, file_name, resume_command
from labkit.lab.measuring.settle_floor import settle_floor
from labkit.lab.measuring.unfinished import Unfinished, remove_older, seal_orphans, seal_partial, unfinished
from labkit.lab.notebook import default_sink
from labkit.model.backend import prepare
from labkit.model.null import is_null
from labkit.model.registry import get
from labkit.store.decisions import read_renewals, read_reopenings
from labkit.store.lab_folder import find_lab


class RunStopped(LabkitError):
    """A run that ended early, by Ctrl-C or a failure; what was measured is in the record, if any was."""

    def __init__(self, need: str, *, exit_code: int, path: Path | None, **parts: str) -> None:
        kept = f"what was measured is kept in {path}" if path else "nothing had been measured"
        step = f"to go on with it: {parts['next_step']}" if path and "next_step" in parts else None
        super().__init__(f"{need}; {kept}", got=parts.get("got"), next_step=step)
        self.exit_code = exit_code
        self.path = path


def utc_now() -> datetime:
    """The time now, in UTC."""
    return datetime.now(UTC)


def run(
    experiment: Experiment | ExperimentFile | str | Path | None = None,
    *,
    root: str | Path | None = None,
    pairs: int | None = None,
    resume: bool = False,
    sink: Sink | None = None,
    environ: Mapping[str, str] | None = None,
    now: Callable[[], datetime] = utc_now,
    lease: Path | None = None,
    floor: bool = True,
) -> Finished:
    """Run an experiment, or the one in a file, and seal it into `root`/results.

    root: the lab; None takes the nearest folder upwards with an experiments/ folder. pairs: overrides the
    experiment's own number. resume: go on with its newest unfinished run; an experiment of None is then the
    only unfinished one of the lab. sink: None shows bars in a notebook. floor: measure an A/A control of the
    baseline first where none counts here; else the margins alone decide.

    Before anything is measured it raises ExperimentInvalid, TextUnusable for text too short for its windows,
    ResultsUnwritable where no record could be kept, WorkerFailed where an arm cannot run and JournalInvalid
    where there is nothing to go on with or what began it has changed. Raises RunStopped where the run ended
    early: what was measured is then in a record marked `partial`; and ResultsUnwritable where the record
    went elsewhere.
    """
    place, sink = Path(root) if root is not None else find_lab(), sink or default_sink()
    held = as_file(_only(place, resume) if experiment is None else experiment)
    if pairs is not None:
        replace(held.experiment, pairs=pairs).validate()
    earlier = _earlier(held, place, pairs) if resume else None
    check_room(place)
    text = _text(held.experiment)
    edge = Edge(place, sink, now, os.environ if environ is None else environ)
    with device_lease(f"labkit run {held.experiment.name}", lease or lease_path(), sink=sink):
        _tell(held, place, now, sink, earlier)
        course = _begin(held, pairs, earlier, edge)
        if earlier is None:
            control = partial(_control, edge=edge) if floor else None
            course.findings.floor = settle_floor(course.findings, edge, control)
        return _to_the_end(course, text)


def _to_the_end(course: Course, text: Text | None) -> Finished:
    with closing(course.journal):
        _measure_or_seal(course, text)
        return _finish(course)


def _control(experiment: Experiment, edge: Edge) -> Record:
    """Run a control within the lease that is held."""
    return _to_the_end(_begin(as_file(experiment), None, None, edge), None).record


def _only(place: Path, resume: bool) -> Path:
    if not resume:
        raise JournalInvalid("an experiment to run was needed", next_step="labkit run FILE")
    return only_unfinished(place)


def _earlier(held: ExperimentFile, place: Path, pairs: int | None) -> Unfinished:
    """The run to go on with, refused before the device is waited for where that can be told by now."""
    earlier = newest_unfinished(held, place, pairs)
    check_same(earlier.restored.findings, held, provenance(place), machine_class(prepare()))
    return earlier


def _tell(
    held: ExperimentFile,
    place: Path,
    now: Callable[[], datetime],
    sink: Sink,
    earlier: Unfinished | None,
) -> None:
    """Seal what was killed; say where an experiment is expired or has a run that could be gone on with."""
    if held.path.parent.name != "promoted":  # what is decided does not expire
        _tell_expiry(held.experiment, place, now().date(), sink)
    seal_orphans(place, sink, now, spare=earlier.path.stem if earlier else "")
    mine = [found for found in unfinished(place) if found.is_of(held, place)]
    mine = [] if held.experiment.control else mine
    if earlier is None and mine:
        found = mine[-1]
        sink(Note(f"an unfinished run lies here ({found.progress()}). To go on with it instead:"))
        sink(Note(found.command()))


def _tell_expiry(experiment: Experiment, place: Path, today: date, sink: Sink) -> None:
    """Say that it is overdue, a renewal counted; that renewals cannot be read is `labkit check`'s to tell."""
    try:
        days = (expiry_of(experiment, read_renewals(place), read_reopenings(place)) - today).days
    except RecipeInvalid:
        days = experiment.days_left(today)
    if days < 0:
        ago = "a day" if days == -1 else f"{-days} days"
        sink(Note(f"{experiment.name} expired {ago} ago: decide it"))


def _begin(
    held: ExperimentFile,
    pairs: int | None,
    earlier: Unfinished | None,
    edge: Edge,
) -> Course:
    """A new run, or the earlier one that it goes on with."""
    place, sink, now = edge.place, edge.sink, edge.now
    ran, notes = _with_recipes(held, place, sink)
    made, machine = provenance(place), machine_class(prepare())
    if earlier is None:
        asked, started = held.experiment.pairs if pairs is None else pairs, now()
        findings = Findings(
            ran, started, asked, made, machine, new_journal_id(held.experiment.name, started), notes=notes
        )
        return Course(findings, RunJournal(place, sink, now), edge)
    journal, restored = take_over(earlier)
    try:
        findings = restored.findings
        check_same(findings, ran, made, machine)
        findings.file = ran
        going, elapsed = resumption(restored, now()), elapsed_s(findings, now())
        goes_on = RunJournal(place, sink, now, journal)
        return Course(findings, goes_on, edge, elapsed, going)
    except BaseException:
        journal.close()
        raise


def _with_recipes(held: ExperimentFile, place: Path, sink: Sink) -> tuple[ExperimentFile, list[str]]:
    """The experiment with its recipes laid over its arms, and what there is to say of them."""
    if not any(getattr(held.experiment, role).recipe for role in ROLES):
        return held, []
    from labkit.lab.deciding.recipes import resolve_arms

    resolved = resolve_arms(held.experiment, place, sink)
    return replace(held, experiment=resolved.experiment), list(resolved.notes)


def _measure_or_seal(course: Course, text: Text | None) -> None:
    """Measure. Where that ends early, seal what there is and raise RunStopped; the error where nothing is."""
    try:
        fetch_models(course.findings.file.experiment, course.edge.sink)
        measure(course, text)
    except KeyboardInterrupt:
        path = _seal(course, "interrupted")
        stopped = "the run was interrupted"
        raise RunStopped(stopped, exit_code=130, path=path, **_again(course)) from None
    except Exception as error:
        path = _seal(course, str(error))
        if path is None or isinstance(error, JournalInvalid):
            raise
        parts = {"got": str(error), **_again(course)}
        raise RunStopped("the run failed", exit_code=1, path=path, **parts) from error


def _again(course: Course) -> dict[str, str]:
    """How to go on with what was stopped; empty where its journal could not be written to the end, and for
    a control, which is made anew."""
    if course.findings.file.experiment.control:
        return {}
    command = resume_command(file_name(course.findings.file, course.edge.place))
    return {"next_step": command} if course.journal.whole else {}


def as_file(experiment: Experiment | ExperimentFile | str | Path) -> ExperimentFile:
    """An experiment with its file; one that was made in a notebook has no file and an empty source hash."""
    if isinstance(experiment, ExperimentFile):
        return experiment
    if isinstance(experiment, Experiment):
        experiment.validate()
        return ExperimentFile(experiment.with_files(), Path(), "")
    return load_experiment(Path(experiment))


def fetch_models(experiment: Experiment, sink: Sink) -> None:
    """Fetch and import what is not here yet, with progress, before workers load it."""
    for model in dict.fromkeys((experiment.baseline.model, experiment.candidate.model)):
        if not is_null(model):
            get(model, sink=sink)


def _text(experiment: Experiment) -> Text | None:
    """The text to score on, where quality is claimed; what is wrong with it needs no device to be told."""
    quality = experiment.score if experiment.wants_quality() else None
    return load_text(quality.name) if quality is not None else None


def _finish(course: Course) -> Finished:
    """Seal a run that came to its end; its journal and those of earlier runs are of no more use then."""
    findings, place = course.findings, course.edge.place
    with uninterrupted():
        record = assemble(findings, "complete", course.edge.now(), place)
        path = _kept(record, course)
        course.journal.sealed(record.run_id, path, "")
        course.journal.remove()
        remove_older(place, findings.file, findings.journal_id)
        refresh_index(place, course.edge.sink)
    return Finished(record, path)


def _kept(record: Record, course: Course) -> Path:
    """Keep a complete record; the journal tells where it lies if that is not in results/."""
    try:
        return keep_record(record, course.edge.place)
    except ResultsUnwritable as error:
        if error.path is not None:
            course.journal.rescued(error.path)
        raise


def _seal(course: Course, why: str) -> Path | None:
    """Keep what there is in a partial record; None where no visit but warm-ups was made."""
    findings, place = course.findings, course.edge.place
    with uninterrupted(deliver=False):
        if not findings.measured.any():
            course.journal.remove()
            return None
        noted = replace(findings, notes=[*findings.notes, why])
        record, path, new = seal_partial(noted, place, course.edge.now())
        if new:
            path = keep_record(record, place)
            course.journal.sealed(record.run_id, path, why)
            refresh_index(place, course.edge.sink)
        return path
