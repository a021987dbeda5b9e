"""Resume: which unfinished run to go on with, and whether it still is the run that it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from labkit.bench.pairs import ROLES
from labkit.core.errors import JournalInvalid
from labkit.lab.experiment import Experiment, ExperimentFile
from labkit.lab.measuring.findings import Findings, name_in
from labkit.lab.measuring.restored import Restored, restore
from labkit.lab.measuring.unfinished import Unfinished, damaged, rescued, unfinished
from labkit.store.journal import FileJournal, open_journal


def only_unfinished(root: Path) -> Path:
    """The experiment file of the one unfinished run of a lab.

    Raises JournalInvalid where there is none, where a notebook holds the experiment, and where there are
    several, which are listed.
    """
    runs = [run for run in unfinished(root) if not run.is_control]
    found = {(run.name, run.file): run for run in runs if run.place(root) or not run.file}
    if len(found) == 1:
        (run,) = found.values()
        place = run.place(root)
        if place is None:
            need = f"an experiment file was needed to go on with {run.name}, which a notebook began"
            raise JournalInvalid(need, next_step=f"in the notebook: {run.command()}")
        return place
    if not found:
        raise _damaged(root, "") or _nothing(f"none in {root.resolve()}", "labkit run FILE")
    listed = [run.file or f"{run.name} (of a notebook)" for run in found.values()]
    raise JournalInvalid(
        "the file of one unfinished run was needed",
        got=f"{len(listed)} unfinished runs",
        options=listed,
        next_step="labkit run FILE --resume",
    )


def newest_unfinished(held: ExperimentFile, root: Path, pairs: int | None) -> Unfinished:
    """The newest unfinished run of an experiment. Raises JournalInvalid where there is none to go on with."""
    name = held.experiment.name
    named = [run for run in unfinished(root) if run.name == name]
    found = [run for run in named if run.is_of(held, root)]
    # A file may have been moved since; what it says is what counts then.
    found = found or [r for r in named if r.restored.findings.file.source_hash == held.source_hash]
    if not found:
        raise _damaged(root, name) or rescued(root, name) or _nothing(f"none of {name}", _anew(held))
    # By when each was last written: a clock may have been set back since the one with the later name began.
    newest = max(found, key=lambda run: run.path.stat().st_mtime_ns)
    asked = newest.restored.findings.pairs
    if pairs is not None and pairs != asked:
        raise JournalInvalid(
            f"the number of pairs that the unfinished run of {name} began with was needed",
            got=f"{pairs}; it began with {asked}",
            next_step=f"go on with it without --pairs, or run it anew: {_anew(held)} --pairs {pairs}",
        )
    return newest


def check_same(
    then: Findings, held: ExperimentFile, provenance: Mapping[str, Any], machine: Mapping[str, Any]
) -> None:
    """Raise JournalInvalid, naming every difference, where a run would not go on as what it was."""
    found = [
        *_file_differences(then.file, held),
        *_code_differences(then.provenance, provenance),
        *_value("the machine class", then.machine["slug"], machine["slug"]),
    ]
    if found:
        raise JournalInvalid(
            f"all that the unfinished run of {held.experiment.name} began with was needed, unchanged",
            got=f"changed since: {'; '.join(found)}",
            next_step=f"run it anew: {_anew(held)}",
        )


def take_over(run: Unfinished) -> tuple[FileJournal, Restored]:
    """Lock a run's journal and read it again. Raises JournalInvalid where another process has it."""
    journal = open_journal(run.path)
    if journal is None:
        raise JournalInvalid(
            f"an unfinished run of {run.name} that nobody else goes on with was needed",
            got="another process has it, or has just ended it",
            next_step="see results/ once it has ended",
        )
    try:
        return journal, restore(journal.entries(), run.path.name)
    except BaseException:
        journal.close()
        raise


def resumption(restored: Restored, now: datetime) -> dict[str, Any]:
    """What a record says of one resumption. A clock that was set back makes a gap of 0 s."""
    gap_s = max(0.0, (now - restored.last_at).total_seconds())
    done = len(restored.findings.measured.ok_pairs())
    at = now.isoformat(timespec="seconds")
    return {"at": at, "pairs": done, "gap_s": round(gap_s, 3), "partial": restored.sealed}


def elapsed_s(findings: Findings, now: datetime) -> float:
    """Seconds since the start of a run, and never before the last visit of it."""
    last = max((visit.started_s for visit in findings.measured.visits), default=0.0)
    return max(last, (now - findings.started).total_seconds())


def _file_differences(then: ExperimentFile, held: ExperimentFile) -> Iterator[str]:
    if then.source_hash != held.source_hash:
        yield "the experiment file"
    elif not _open_recipe(held.experiment) and _identity(then.experiment) != _identity(held.experiment):
        yield "the experiment, or the recipe that its arms resolve to"


def _identity(experiment: Experiment) -> Mapping[str, Any]:
    """What is the same in every process: a class by value is not."""
    arms = {role: getattr(experiment, role).portable() for role in ROLES}
    return replace(experiment, **arms).identity()


def _open_recipe(experiment: Experiment) -> bool:
    """Whether what an arm runs is not yet known; its plan is compared once it is."""
    return any(arm.recipe for arm in (experiment.baseline, experiment.candidate))


def _code_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    yield from _value("the code of labkit", then["code_hash"], now["code_hash"])
    yield from _value("python", then["python"], now["python"])
    for name in sorted({*then["packages"], *now["packages"]}):
        yield from _value(name, then["packages"].get(name, "none"), now["packages"].get(name, "none"))


def _value(name: str, then: str, now: str) -> Iterator[str]:
    if then != now:
        yield f"{name} ({then} -> {now})"


def _anew(held: ExperimentFile) -> str:
    return f"labkit run {held.path}" if held.source_hash else "labkit.run(experiment)"


def _damaged(root: Path, name: str) -> JournalInvalid | None:
    """Why the newest journal of an experiment, or of any, cannot be gone on with."""
    why = [why for stem, why in damaged(root).items() if name in ("", name_in(stem))]
    return why[-1] if why else None


def _nothing(got: str, step: str) -> JournalInvalid:
    return JournalInvalid("an unfinished run to resume was needed", got=got, next_step=step)
