"""Run an experiment: measure, score, judge, and write one record. Only `lab` writes records."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.bench.lease import device_lease, lease_path
from labkit.core.errors import ExperimentInvalid, LabkitError
from labkit.core.events import Note, Sink, silent
from labkit.core.records import Record
from labkit.lab.assemble import Findings, assemble
from labkit.lab.experiment import Experiment, ExperimentFile, load_experiment
from labkit.lab.measure import Bench
from labkit.lab.quality import score_windows, score_workers
from labkit.model.null import is_null
from labkit.model.registry import get
from labkit.store.index import refresh
from labkit.store.query import database_path
from labkit.store.write import write_record

if TYPE_CHECKING:
    import pandas


class RunStopped(LabkitError):
    """A run that ended early, by Ctrl-C or a failure; what was measured is in the record, if any was."""

    def __init__(self, need: str, *, exit_code: int, path: Path | None, **parts: str) -> None:
        kept = f"what was measured is kept in {path.name}" if path else "nothing had been measured"
        super().__init__(f"{need}; {kept}", got=parts.get("got"))
        self.exit_code = exit_code
        self.path = path


@dataclass(frozen=True, slots=True)
class Finished:
    """A sealed run: the record and where it lies."""

    record: Record
    path: Path

    def verdicts(self) -> pandas.DataFrame:
        """One row per axis: change for the better with its 95% interval, margin, verdict, expectation."""
        import pandas

        columns = ["metric", "goal", "margin", "estimate", "low", "high", "n", "unit", "p_holm", "verdict"]
        frame = pandas.DataFrame([{c: getattr(axis, c) for c in columns} for axis in self.record.axes])
        return frame.assign(expected=frame["metric"].map(self.record.experiment["expects"]))


def utc_now() -> datetime:
    """The time now, in UTC."""
    return datetime.now(UTC)


def run(
    experiment: Experiment | ExperimentFile | str | Path,
    *,
    root: str | Path = ".",
    pairs: int | None = None,
    sink: Sink = silent,
    environ: Mapping[str, str] | None = None,
    now: Callable[[], datetime] = utc_now,
    lease: Path | None = None,
) -> Finished:
    """Run an experiment, or the one in a file, and seal it into `root`/results.

    pairs: overrides the experiment's own number. Raises ExperimentInvalid before anything runs, WorkerFailed
    where an arm cannot run, RunStopped where the run ended early: what was measured is then in a record
    marked `partial`.
    """
    held = as_file(experiment)
    findings = Findings(held, now(), pairs or held.experiment.pairs)
    with device_lease(f"labkit run {held.experiment.name}", lease or lease_path(), sink=sink):
        try:
            _measure(findings, sink, os.environ if environ is None else environ)
        except KeyboardInterrupt:
            path = _seal(findings, root, now, "interrupted by Ctrl-C")
            raise RunStopped("the run was interrupted", exit_code=130, path=path) from None
        except Exception as error:
            path = _seal(findings, root, now, str(error)) if findings.measured.visits else None
            if path is None:
                raise
            raise RunStopped("the run failed", exit_code=1, path=path, got=str(error)) from error
    return _sealed(findings, root, now)


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
    for model in {experiment.baseline.model, experiment.candidate.model}:
        if not is_null(model):
            get(model, sink=sink)


def _measure(findings: Findings, sink: Sink, environ: Mapping[str, str]) -> None:
    experiment = findings.file.experiment
    fetch_models(experiment, sink)
    with Bench(experiment, findings.measured, sink, environ) as bench:
        bench.open()
        findings.rooflines.update(bench.rooflines())
        for role, card in findings.rooflines.items():
            if card:
                sink(Note(f"{role} {getattr(experiment, role).label()}\n{card['card']}"))
        bench.run(findings.pairs)
        if experiment.score is not None and experiment.wants_quality():
            _score(findings, bench, sink)


def _score(findings: Findings, bench: Bench, sink: Sink) -> None:
    spec, opened = findings.file.experiment.score, findings.measured.opened
    assert spec is not None
    tokenizers = {role: opened[role]["artifact"].get("tokenizer_hash") for role in opened}
    if len(set(tokenizers.values())) > 1:
        need = "KL between arms needs one tokenizer"
        raise ExperimentInvalid(need, got="arms with different tokenizers")
    reference, candidate = bench.client("baseline"), bench.client("candidate")
    text, windows = score_windows(spec, reference, opened["baseline"])
    findings.text_hash, findings.windows_hash = text.hash(), windows.hash()
    score_workers(reference, candidate, windows, sink, findings.scores)


def _seal(findings: Findings, root: str | Path, now: Callable[[], datetime], why: str) -> Path | None:
    if not findings.measured.ok_pairs() and not findings.measured.failed():
        return None
    findings.notes.append(why)
    return _write(assemble(findings, "partial", now(), Path(root)), Path(root))


def _sealed(findings: Findings, root: str | Path, now: Callable[[], datetime]) -> Finished:
    record = assemble(findings, "complete", now(), Path(root))
    return Finished(record, _write(record, Path(root)))


def _write(record: Record, root: Path) -> Path:
    path = write_record(record, root)
    refresh(root, database_path(root))
    return path
