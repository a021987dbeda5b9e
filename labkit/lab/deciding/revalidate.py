"""Revalidate: promoted experiments are measured again with the present code; what fails is reopened.

Knows which recipes can be measured here and what becomes of them; `holding` compares, `reopening` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from labkit.core.decision import Recipe
from labkit.core.errors import DecisionRefused, LabkitError
from labkit.core.events import Note, Sink
from labkit.core.records import Record
from labkit.lab.deciding.evidence import evidence_problem
from labkit.lab.deciding.holding import holding
from labkit.lab.deciding.ledger import LabFile, Ledger, lab_root, read_ledger
from labkit.lab.deciding.recipes import fingerprint_at_hand
from labkit.lab.deciding.recorded import differences, misshapen
from labkit.lab.deciding.rejudging import good_pairs
from labkit.lab.deciding.reopening import end_reopening, in_the_way, reopen
from labkit.lab.deciding.revalidation import Revalidated, Revalidation
from labkit.lab.measuring.finished import Finished
from labkit.lab.measuring.provenance import machine_class
from labkit.lab.measuring.run import RunStopped, run
from labkit.lab.notebook import default_sink
from labkit.model.backend import prepare
from labkit.store.read import one_line, read_record

INTERRUPTED = 130
Measure = Callable[..., Finished]


@dataclass(frozen=True, slots=True)
class _Setting:
    """Where and how promoted experiments are measured again. pairs: None takes as many as before."""

    root: Path
    here: str
    today: date
    pairs: int | None
    sink: Sink
    measure: Measure


def revalidate(
    *names: str,
    root: str | Path | None = None,
    pairs: int | None = None,
    sink: Sink | None = None,
    ended: Callable[[Revalidated], None] = lambda _: None,
    today: date | None = None,
    machine: str | None = None,
    measure: Measure = run,
) -> Revalidation:
    """Measure promoted experiments again, one after the other, and reopen those that no longer hold.

    names: none takes all. root: the lab; None takes the nearest folder upwards with experiments/. pairs: of
    visits; None takes as many as the promotion had, or its file asks for. ended: called with each result as
    it comes. today, machine: the date and the slug of this machine class, None for the real ones. measure:
    what runs an experiment file, as `labkit.lab.measuring.run.run` does.

    What is unresolved, or was measured on a machine that was not quiet, stays promoted. A reopening that was
    torn is ended. Raises DecisionRefused where a name is not that of a promoted experiment, RecipeInvalid
    where a file of decisions is broken, RunStopped by Ctrl-C.
    """
    place = lab_root(root)
    here = machine or machine_class(prepare())["slug"]
    setting = _Setting(place, here, today or datetime.now(UTC).date(), pairs, sink or default_sink(), measure)
    results: list[Revalidated] = []
    for name in _wanted(read_ledger(place), names):
        results.append(_revalidated(setting, name))
        ended(results[-1])
    return Revalidation(tuple(results))


def _wanted(ledger: Ledger, names: Sequence[str]) -> list[str]:
    torn = [r.name for r in ledger.reopenings if ledger.torn_reopening(r.name)]
    known = [*dict.fromkeys(torn), *(r.name for r in ledger.recipes if ledger.standing(r.name))]
    for name in names:
        if name not in known:
            got = ledger.decided(name) or ("an open one" if name in ledger.open_names() else "no experiment")
            need = "the name of a promoted experiment of this lab was needed"
            raise DecisionRefused(need, got=f"{name}: {got}", options=sorted(known))
    return list(dict.fromkeys(names)) or known


def _revalidated(setting: _Setting, name: str) -> Revalidated:
    ledger = read_ledger(setting.root)  # a run takes long, and others may decide meanwhile
    if ledger.torn_reopening(name):
        return _ended(setting, name)
    recipe = ledger.standing(name)
    if recipe is None:
        return Revalidated(name, "skipped", ("it was decided meanwhile",))
    if recipe.machine != setting.here:
        return Revalidated(name, "skipped", (f"it holds for {recipe.machine}; this is {setting.here}",))
    try:
        promoted, file = _carried(ledger, recipe)
        finished = _measured(setting, promoted, file)
    except LabkitError as error:
        if isinstance(error, RunStopped) and error.exit_code == INTERRUPTED:
            raise
        return Revalidated(name, "not run", (one_line(error),), next_step=error.next_step or "")
    return _judged(setting, recipe, promoted, finished)


def _ended(setting: _Setting, name: str) -> Revalidated:
    try:
        decided = end_reopening(setting.root, name)
    except DecisionRefused as error:
        return Revalidated(name, "not run", (one_line(error),))
    return Revalidated(name, "reopened", ("a reopening that was torn is ended",), decided=decided)


def _carried(ledger: Ledger, recipe: Recipe) -> tuple[Record, LabFile]:
    """The record of a promotion, and its file. Raises DecisionRefused where it cannot be repeated."""
    for item in recipe.evidence:
        problem = evidence_problem(ledger.root, item)
        if problem:
            raise _unrepeatable(f"its evidence {item.path} {problem}", "take it back from git")
    record = read_record(ledger.root / recipe.evidence[-1].path)
    file = ledger.kept_file(recipe.name)
    problem = next(_hindrances(ledger, recipe, record, file), None)
    if problem or file is None:
        raise _unrepeatable(*(problem or ("its file is missing", "take it back from git")))
    return record, file


def _hindrances(
    ledger: Ledger, recipe: Recipe, record: Record, file: LabFile | None
) -> Iterator[tuple[str, str]]:
    """Why what was promoted cannot be measured again, and what to do about it."""
    again = f"take it back from git, or labkit delete {recipe.name} --why ..."
    yield from ((f"its evidence: {text}", again) for text in misshapen(record))
    if file is None:
        torn = ledger.files(recipe.name)
        step = f"labkit promote {recipe.name} --why ... ends its promotion" if torn else again
        yield f"its file experiments/promoted/{recipe.name}.py is missing", step
        return
    if file.experiment is None:
        yield f"{ledger.shown(file.path)} does not load: {file.problem}", again
        return
    if file.source_hash != record.experiment.get("source_hash"):
        yield f"{ledger.shown(file.path)} was edited after its promotion", again
    for other in differences(file.experiment, record):
        yield f"{ledger.shown(file.path)} no longer states what was promoted: {other}", again
    for reason in in_the_way(ledger, recipe.name):
        yield reason, f"then: labkit revalidate {recipe.name}"
    yield from _other_artifact(recipe)


def _other_artifact(recipe: Recipe) -> Iterator[tuple[str, str]]:
    model = recipe.arm.model
    try:
        found = fingerprint_at_hand(model)
    except LabkitError as error:
        yield f"its model {model} is not here", error.next_step or f"labkit models get {model}"
        return
    if found != recipe.fingerprint:
        got = f"{found[:12]} is here and {recipe.fingerprint[:12]} was promoted"
        yield f"its model {model} is another artifact: {got}", f"labkit models get {model}"


def _unrepeatable(problem: str, step: str) -> DecisionRefused:
    return DecisionRefused(problem, next_step=step)


def _measured(setting: _Setting, promoted: Record, file: LabFile) -> Finished:
    asked = file.experiment.pairs if file.experiment else 1
    pairs = max(asked, len(good_pairs(promoted))) if setting.pairs is None else setting.pairs
    setting.sink(Note(f"{file.name}: measured again, {pairs} pairs"))
    return setting.measure(file.path, root=setting.root, pairs=pairs, sink=setting.sink)


def _judged(setting: _Setting, recipe: Recipe, promoted: Record, finished: Finished) -> Revalidated:
    record, name = finished.record, recipe.name
    meanwhile = _decided_meanwhile(setting.root, recipe, record)
    if meanwhile:
        return meanwhile
    found = holding(promoted, record)
    if found.state != "lost":
        return Revalidated(name, found.state, found.reasons, record.run_id)
    why = f"it no longer holds: {'; '.join(found.reasons)}"
    try:
        decided = reopen(setting.root, recipe, why=why, evidence=(record.run_id,), today=setting.today)
    except DecisionRefused as error:
        left = Revalidated(name, "not settled", (why, one_line(error)), record.run_id)
        return _decided_meanwhile(setting.root, recipe, record) or left
    return Revalidated(name, "reopened", found.reasons, record.run_id, decided)


def _decided_meanwhile(root: Path, recipe: Recipe, record: Record) -> Revalidated | None:
    """The result where the promotion that was measured is no longer the one that stands; else None."""
    ledger = read_ledger(root)
    if ledger.standing(recipe.name) == recipe:
        return None
    decided = ledger.decided(recipe.name) or "it is open again"
    return Revalidated(recipe.name, "skipped", (f"it was decided meanwhile: {decided}",), record.run_id)
