"""Run an experiment: measure, score, judge, and write one record. Only `lab` writes records."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

from labkit.bench.lease import device_lease, lease_path
from labkit.core.errors import LabkitError
from labkit.core.events import Note, Sink
from labkit.engine.shield import uninterrupted
from labkit.evals.text import Text, load_text
from labkit.lab.assemble import Findings, assemble
from labkit.lab.experiment import Experiment, ExperimentFile, ScoreText, load_experiment
from labkit.lab.finished import Finished
from labkit.lab.keep import check_room, keep_record, refresh_index
from labkit.lab.measure import Bench
from labkit.lab.notebook import default_sink
from labkit.lab.provenance import provenance
from labkit.lab.quality import check_comparable, score_windows, score_workers
from labkit.model.null import is_null
from labkit.model.registry import get
from labkit.model.windows import Windows
from labkit.store.lab_folder import find_lab


class RunStopped(LabkitError):
    """A run that ended early, by Ctrl-C or a failure; what was measured is in the record, if any was."""

    def __init__(self, need: str, *, exit_code: int, path: Path | None, **parts: str) -> None:
        kept = f"what was measured is kept in {path}" if path else "nothing had been measured"
        super().__init__(f"{need}; {kept}", got=parts.get("got"))
        self.exit_code = exit_code
        self.path = path


def utc_now() -> datetime:
    """The time now, in UTC."""
    return datetime.now(UTC)


def run(
    experiment: Experiment | ExperimentFile | str | Path,
    *,
    root: str | Path | None = None,
    pairs: int | None = None,
    sink: Sink | None = None,
    environ: Mapping[str, str] | None = None,
    now: Callable[[], datetime] = utc_now,
    lease: Path | None = None,
) -> Finished:
    """Run an experiment, or the one in a file, and seal it into `root`/results.

    root: the lab; None takes the nearest folder upwards with an experiments/ folder. pairs: overrides the
    experiment's own number. sink: None shows bars in a notebook.

    Before anything is measured it raises ExperimentInvalid, TextUnusable for text too short for its windows,
    ResultsUnwritable where no record could be kept and WorkerFailed where an arm cannot run. Raises
    RunStopped where the run ended early: what was measured is then in a record marked `partial`; and
    ResultsUnwritable where the record went elsewhere.
    """
    held, place = as_file(experiment), Path(root) if root is not None else find_lab()
    sink = sink or default_sink()
    if pairs is not None:
        replace(held.experiment, pairs=pairs).validate()
    check_room(place)
    with device_lease(f"labkit run {held.experiment.name}", lease or lease_path(), sink=sink):
        asked = held.experiment.pairs if pairs is None else pairs
        findings = Findings(held, now(), asked, provenance(place))
        _tell_expiry(held.experiment, now().date(), sink)
        _measure_or_seal(findings, place, now, sink, os.environ if environ is None else environ)
    with uninterrupted():
        record = assemble(findings, "complete", now(), place)
        path = keep_record(record, place)
        refresh_index(place, sink)
    return Finished(record, path)


def _tell_expiry(experiment: Experiment, today: date, sink: Sink) -> None:
    days = experiment.days_left(today)
    if days < 0:
        sink(Note(f"{experiment.name} expired {-days} days ago: decide it"))


def _measure_or_seal(
    findings: Findings, place: Path, now: Callable[[], datetime], sink: Sink, environ: Mapping[str, str]
) -> None:
    """Measure. Where that ends early, seal what there is and raise RunStopped; the error where nothing is."""
    try:
        _measure(findings, sink, environ)
    except KeyboardInterrupt:
        path = _seal(findings, place, now, sink, "interrupted")
        raise RunStopped("the run was interrupted", exit_code=130, path=path) from None
    except Exception as error:
        path = _seal(findings, place, now, sink, str(error))
        if path is None:
            raise
        raise RunStopped("the run failed", exit_code=1, path=path, got=str(error)) from error


def as_file(experiment: Experiment | ExperimentFile | str | Path) -> ExperimentFile:
    """An experiment with its file; one that was made in a notebook has no file and an empty source hash."""
    if isinstance(experiment, ExperimentFile):
        return experiment
    if isinstance(experiment, Experiment):
        experiment.validate()
        return ExperimentFile(experiment, Path(), "")
    return load_experiment(Path(experiment))


def fetch_models(experiment: Experiment, sink: Sink) -> None:
    """Fetch and import what is not here yet, with progress, before workers load it."""
    for model in dict.fromkeys((experiment.baseline.model, experiment.candidate.model)):
        if not is_null(model):
            get(model, sink=sink)


def _measure(findings: Findings, sink: Sink, environ: Mapping[str, str]) -> None:
    experiment = findings.file.experiment
    quality = experiment.score if experiment.wants_quality() else None
    text = load_text(quality.name) if quality is not None else None
    fetch_models(experiment, sink)
    with Bench(experiment, findings.measured, sink, environ) as bench:
        bench.open()
        windows = _windows(findings, text, quality, bench) if text and quality else None
        findings.rooflines.update(bench.rooflines())
        for role, card in findings.rooflines.items():
            if card:
                sink(Note(f"{role} {getattr(experiment, role).label()}\n{card['card']}"))
        bench.run(findings.pairs)
        if windows is not None:
            score_workers(bench.client("baseline"), bench.client("candidate"), windows, sink, findings.scores)


def _windows(findings: Findings, text: Text, spec: ScoreText, bench: Bench) -> Windows:
    """Cut the text before any visit, so that what cannot be scored is refused before it is measured."""
    opened = findings.measured.opened
    check_comparable(opened, spec)
    windows = score_windows(text, spec, bench.client("baseline"), opened["baseline"])
    findings.text_hash, findings.windows_hash = text.hash(), windows.hash()
    return windows


def _seal(findings: Findings, root: Path, now: Callable[[], datetime], sink: Sink, why: str) -> Path | None:
    """Keep what there is in a partial record; None where no visit but warm-ups was made."""
    if all(visit.status == "warmup" for visit in findings.measured.visits):
        return None
    findings.notes.append(why)
    with uninterrupted(deliver=False):
        path = keep_record(assemble(findings, "partial", now(), root), root)
        refresh_index(root, sink)
    return path
