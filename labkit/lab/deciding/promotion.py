"""Promotion: an open experiment becomes a recipe, where its record carries it; its file moves to promoted/.

Knows the order of the steps; what speaks against a record is `objections`' to say.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path

from labkit.core.arm import Arm, Workload
from labkit.core.decision import Decision, Evidence, Recipe
from labkit.core.errors import DecisionRefused
from labkit.core.records import ArmResult
from labkit.engine.shield import uninterrupted
from labkit.lab.deciding.choose_run import choose_run
from labkit.lab.deciding.decided import Decided, as_first_given
from labkit.lab.deciding.git_files import is_tracked
from labkit.lab.deciding.ledger import TORN, LabFile, Ledger, kept_folder, lab_root, read_ledger
from labkit.lab.deciding.moving import move_file, told
from labkit.lab.deciding.objections import Case, axis_line, conditions, objections
from labkit.lab.deciding.refusal import refused, unsaid
from labkit.lab.deciding.running import seal_killed, unmeasured
from labkit.lab.measuring.provenance import code_hash, machine_class
from labkit.lab.reading.runs import Run, runs_of
from labkit.model.backend import prepare
from labkit.store.decisions import deciding
from labkit.store.read import read_record
from labkit.store.recipes import add_recipe


def promote(
    name: str,
    *,
    why: str,
    root: str | Path | None = None,
    record: str | None = None,
    accept_trade_off: bool = False,
    today: date | None = None,
    machine: str | None = None,
) -> Decided:
    """Promote an open experiment: its candidate becomes a recipe for the machine class it was measured on.

    root: the lab; None takes the nearest folder upwards with experiments/. record: a run id; None takes the
    newest complete record of this machine class. accept_trade_off: whether what the record shows as lost is
    accepted. today, machine: the date and the slug of this machine class, None for the real ones.

    The recipe is written first, then the file moves to experiments/promoted/; where a promotion was torn
    between the two, this ends it, if the recipe is what its record carries. What a killed run left is sealed
    into a record first. Raises DecisionRefused with every reason, RecipeInvalid where a file of decisions is
    broken.
    """
    place, here = lab_root(root), cache(lambda: machine or machine_class(prepare())["slug"])
    with deciding(place):
        seal_killed(place)
        ledger = read_ledger(place)
        torn = torn_promotion(ledger, name)
        if torn is not None:
            recipe, file = torn
            _check_torn(ledger, recipe, file, why)
        else:
            case = _case(ledger, name, why, record, accept_trade_off, here)
            recipe, file = _recipe(case, why, today or datetime.now(UTC).date()), case.file
        with uninterrupted():
            if torn is None:
                add_recipe(place, recipe)
            moved = f"{name} is promoted, but {file.path.name} could not be moved to experiments/promoted/"
            with told(moved, f"labkit promote {name} --why ..."):
                move_file(file.path, kept_path(place, name))
    first = as_first_given(recipe.why, why) if torn else ()
    return _decided(ledger, recipe, file, here(), first)


def torn_promotion(ledger: Ledger, name: str) -> tuple[Recipe, LabFile] | None:
    """The recipe and the file of a promotion that ended before the file moved; None where there is none.

    The file is the promoted one where it has the hash that the record of the recipe names. A power cut may
    leave it at both of its names.
    """
    recipe, files, kept = ledger.standing(name), ledger.files(name), ledger.kept_file(name)
    if recipe is None or len(files) != 1:
        return None
    if kept and kept.source_hash != files[0].source_hash:
        return None
    evidence = {item.run_id for item in recipe.evidence}
    measured = {run.source_hash for run in runs_of(ledger.root, name) if run.run_id in evidence}
    return (recipe, files[0]) if files[0].source_hash in measured else None


def kept_path(root: Path, name: str) -> Path:
    """Where the file of a promoted experiment lies."""
    return kept_folder(root) / f"{name}.py"


def _check_torn(ledger: Ledger, recipe: Recipe, file: LabFile, why: str) -> None:
    """Raise DecisionRefused where the recipe of a torn promotion is not what its record carries today."""
    reasons = [*unsaid(why), *unmeasured(ledger.root, recipe.name)]
    paths = {item.path for item in recipe.evidence}
    known = runs_of(ledger.root, recipe.name)
    runs = [run for run in known if run.path in paths]
    if len(runs) != 1 or len(paths) != 1:
        reasons.append(f"recipe.evidence: one record of this lab is needed, got {', '.join(sorted(paths))}")
    else:
        record = read_record(ledger.root / runs[0].path)
        accepted = recipe.outcome == "trade-off"
        case = Case(ledger.root, file, runs[0], record, code_hash(), accepted, known)
        reasons += objections(case)
        reasons += [] if reasons else _pasted(case, recipe)
    if reasons:
        step = f"take experiments/promoted.toml back from git, or labkit delete {recipe.name} --why ..."
        raise refused(recipe.name, "promoted", reasons, step)


def _pasted(case: Case, recipe: Recipe) -> Iterator[str]:
    """Fields of a recipe that are not what a promotion on its record would have written."""
    carried = _recipe(case, recipe.why, date.fromisoformat(recipe.decided_at))
    for field in fields(Recipe):
        told, found = getattr(recipe, field.name), getattr(carried, field.name)
        if told != found:
            yield f"recipe.{field.name}: what its record carries, {found}, is needed, got {told}"


def _case(
    ledger: Ledger, name: str, why: str, record: str | None, accepted: bool, here: Callable[[], str]
) -> Case:
    """The case for a promotion. Raises DecisionRefused where anything speaks against it."""
    reasons = list(unsaid(why))
    if ledger.decided(name):
        raise refused(name, "promoted", [*reasons, *_decided_already(ledger, name)])
    if ledger.torn_reopening(name):
        torn = f"state: an open experiment is needed, {TORN}; labkit revalidate {name} ends that"
        raise refused(name, "promoted", [*reasons, torn])
    file = ledger.the_file(name)
    reasons += [*_file_reasons(ledger, file), *unmeasured(ledger.root, name)]
    try:
        case = _gathered(ledger, file, record, accepted, here)
    except DecisionRefused as error:
        parts = {"options": error.options, "next_step": error.next_step}
        told = error.need if error.got is None else f"{error.need}, got {error.got}"
        need = refused(name, "promoted", [*reasons, told]).need
        raise DecisionRefused(need, **parts) from error
    reasons += [*_withdrawn(ledger, case.run, case.known), *objections(case)]
    if reasons:
        raise refused(name, "promoted", reasons)
    return case


def _withdrawn(ledger: Ledger, run: Run, known: Sequence[Run]) -> Iterator[str]:
    """Reopenings that took a record back, or that rest on a newer one of its machine class."""
    same = [other.run_id for other in known if other.machine == run.machine]
    for reopening in (r for r in ledger.reopenings if r.name == run.experiment):
        later = same[same.index(run.run_id) + 1 :] if run.run_id in same else []
        if run.run_id in reopening.withdrawn or not set(later).isdisjoint(reopening.evidence):
            told = f"{', '.join(reopening.evidence)} does not carry it"
            got = f"{run.run_id}, which the reopening of {reopening.decided_at} withdrew, since {told}"
            yield f"record: one from after its reopening is needed, got {got}"


def _gathered(
    ledger: Ledger, file: LabFile, record: str | None, accepted: bool, here: Callable[[], str]
) -> Case:
    if file.experiment is not None and file.experiment.control:
        step = "labkit show shows what it found"
        raise DecisionRefused("an experiment that can be decided is needed, got a control", next_step=step)
    known = runs_of(ledger.root, file.name)
    run = choose_run(known, record, here, file.path.name)
    return Case(ledger.root, file, run, read_record(ledger.root / run.path), code_hash(), accepted, known)


def _decided_already(ledger: Ledger, name: str) -> Iterator[str]:
    yield f"state: an open experiment is needed, got {ledger.decided(name)}"
    for file in ledger.files(name):
        yield f"name: one of its own is needed for {ledger.shown(file.path)}, got that of a decided one"


def _file_reasons(ledger: Ledger, file: LabFile) -> Iterator[str]:
    if file.experiment is None:
        yield f"file: one that loads is needed, got: {file.problem}"
    target = kept_path(ledger.root, file.name)
    if target.exists():
        yield f"file: a free place at {ledger.shown(target)} is needed, got a file; move that away"


def _recipe(case: Case, why: str, today: date) -> Recipe:
    record = case.record
    baseline, candidate = (record.arm(role) for role in ("baseline", "candidate"))
    sha256 = hashlib.sha256((case.root / case.run.path).read_bytes()).hexdigest()
    return Recipe(
        name=case.file.name,
        why=why.strip(),
        decided_at=today.isoformat(),
        machine=record.machine["slug"],
        family=baseline.artifact["family"],
        workload=Workload(**record.experiment["workload"]),
        baseline=_arm(case, baseline),
        arm=_arm(case, candidate),
        fingerprint=candidate.artifact["fingerprint"],
        outcome=record.outcome,
        axes=tuple(map(axis_line, record.axes)),
        evidence=(Evidence(record.run_id, case.run.path, sha256),),
        conditions=tuple(conditions(case)),
    )


def _arm(case: Case, measured: ArmResult) -> Arm:
    """The arm as it ran; its model and KV file as the file names them, which finds those of one's own again.

    A class goes by its label, which an import finds: no other is promoted.
    """
    arm = replace(Arm.from_identity(measured.arm), classes=())
    asked: Arm | None = getattr(case.file.experiment, measured.role, None)
    return replace(arm, model=asked.model, kv=asked.kv) if asked and not asked.recipe else arm


def _decided(
    ledger: Ledger, recipe: Recipe, file: LabFile, here: str, first: tuple[tuple[str, str], ...]
) -> Decided:
    evidence = tuple(item.run_id for item in recipe.evidence)
    decision = Decision("promoted", recipe.name, recipe.decided_at, recipe.why, recipe.outcome, evidence)
    target = kept_path(ledger.root, recipe.name)
    old, new = ledger.shown(file.path), ledger.shown(target)
    added = ["experiments/promoted.toml", new, *([old] if is_tracked(file.path) else [])]
    added += [item.path for item in recipe.evidence]
    commit = ("commit", f"git add -A {shlex.join(added)}")
    return Decided(decision, target, (*first, *_lines(recipe, old, new, here), commit))


def _lines(recipe: Recipe, old: str, new: str, here: str) -> Iterator[tuple[str, str]]:
    model = recipe.baseline.model
    other = "" if recipe.machine == here else f", another machine class than this one ({here})"
    yield "recipe", f"{recipe.arm.label()} in experiments/promoted.toml"
    yield "holds for", f"{recipe.family} at {recipe.workload.label()} tokens on {recipe.machine}{other}"
    yield from (("verdict", axis) for axis in recipe.axes)
    yield from (("condition", text) for text in recipe.conditions)
    yield "file", f"{old} is now {new}"
    yield "picked up", f'by Arm("{model}", recipe="auto") or Arm("{model}", recipe="{recipe.name}")'
    yield "unchanged", f"an arm without a recipe: {recipe.baseline.label()} runs as before, bit for bit"
