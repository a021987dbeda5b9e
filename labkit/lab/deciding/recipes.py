"""Recipes for arms: lays what a lab has promoted over the arms that ask for it, before anything runs.

Knows the lab's files and this machine; which recipe applies is the planner's to say (`plan.recipes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.core.arm import Arm, Workload
from labkit.core.decision import Recipe
from labkit.core.errors import BackendMissing, LabkitError, PlanRefused, RecipeInvalid
from labkit.core.events import Note, Sink, silent
from labkit.lab.experiment import Experiment
from labkit.lab.measuring.provenance import machine_class
from labkit.model.artifact import measure
from labkit.model.backend import prepare
from labkit.model.null import is_null, parse_null
from labkit.model.registry import get
from labkit.model.registry import resolve as find
from labkit.model.vocabulary import vocabulary_hash
from labkit.plan.recipes import Chosen, Situation, changes, choose
from labkit.store.decisions import read_standing
from labkit.store.lab_folder import find_lab

if TYPE_CHECKING:
    from labkit.engine.model import Model
    from labkit.engine.session import Session
    from labkit.plan.plan import Plan

# The fields that an arm and a request share.
_ARMS = ("kv", "sampling", "method", "prefill_chunk")


@dataclass(frozen=True, slots=True)
class Resolved:
    """An experiment whose arms say what runs. notes: a line per arm that had asked for a recipe."""

    experiment: Experiment
    notes: tuple[str, ...] = ()


def resolve_arms(experiment: Experiment, root: Path, sink: Sink = silent) -> Resolved:
    """Lay recipes over the arms of an experiment that ask for one; any other comes back as it is.

    Raises RecipeInvalid where promoted.toml cannot be read, or a recipe asked for by name does not apply.
    """
    changed, notes = {}, []
    for role in ("baseline", "candidate"):
        arm: Arm = getattr(experiment, role)
        if arm.recipe is None:
            continue
        chosen = choose_recipe(arm, experiment.workload, root, sink)
        changed[role] = chosen.arm
        notes.append(f"{role} recipe: {'; '.join(chosen.reason.splitlines())}")
        sink(Note(notes[-1]))
    return Resolved(replace(experiment, **changed) if changed else experiment, tuple(notes))


def choose_recipe(
    arm: Arm, workload: Workload, root: Path, sink: Sink = silent, *, blas: str | None = None
) -> Chosen:
    """What an arm comes to in a lab on this machine. blas: of this process, where it is to run in it."""
    if arm.recipe is None:
        return choose(arm, (), Situation("", "", "", workload))
    recipes = read_standing(root)
    family, fingerprint = _identity(arm.model, sink)
    machine = machine_class(prepare())["slug"]
    return choose(arm, recipes, Situation(machine, family, fingerprint, workload, _at_hand(recipes), blas))


def resolve(arm: Arm, workload: Workload, *, root: str | Path | None = None, sink: Sink = silent) -> Plan:
    """The plan of an arm for a workload in this process, with the recipe that filled it in.

    `explain()` prints it. root: the lab whose recipes count; None takes the nearest folder upwards with
    experiments/. Raises PlanRefused with every reason where the arm cannot run, RecipeInvalid as
    `resolve_arms` does, BackendMissing where the arm states a BLAS that this process does not have.
    """
    from labkit.bench.visit import workload_request
    from labkit.engine.load import load

    chosen = choose_recipe(arm, workload, _place(root), sink, blas=prepare().blas)
    _check_blas(chosen.arm)
    model = load(chosen.arm.model, sink=sink)
    request = workload_request(model, chosen.arm, workload, workload.seed)
    return model.resolve(request.changed(recipe=chosen.reason))


def session(
    arm: Arm,
    prompt: str | Sequence[int],
    *,
    root: str | Path | None = None,
    sink: Sink = silent,
    **options: Any,
) -> Session:
    """A session of an arm, its recipe laid over it; `plan.explain()` says which and why.

    options: those of `Model.request` that no arm has, such as max_tokens, seed and stop. The recipe is chosen
    for this prompt and max_tokens; one that needs another BLAS than this process has does not apply.
    Raises PlanRefused with every reason where the request cannot run or the arm states how a batch is shared,
    RecipeInvalid as `resolve_arms` does and where token ids would be read by a model of another vocabulary,
    BackendMissing as `resolve` does.
    """
    from labkit.engine.load import load
    from labkit.engine.model import check_options

    check_options(options)
    _check_free(options)
    _check_alone(arm)
    _check_blas(arm)
    model = load(arm.model, sink=sink)
    first = model.request(prompt, **options)
    asked = Workload(max(1, len(first.prompt)), max(1, first.max_tokens))
    chosen = choose_recipe(arm, asked, _place(root), sink, blas=prepare().blas)
    if chosen.arm.model != arm.model:
        other = load(chosen.arm.model, sink=sink)
        _check_vocabulary(prompt, model, other)
        model = other
    settings = {name: chosen.arm.asked(name) if name == "kv" else getattr(chosen.arm, name) for name in _ARMS}
    return model.open(model.request(prompt, **options, **settings).changed(recipe=chosen.reason))


def _check_blas(arm: Arm) -> None:
    """A running process cannot change its BLAS, so an arm that states another one cannot run in it."""
    backend = prepare()
    if arm.blas and arm.blas != backend.blas:
        raise BackendMissing(
            f"the {arm.blas} BLAS is needed by the arm {arm.label()}",
            got=f"{backend.blas or backend.device} in this process",
            next_step=f"set LABKIT_BLAS={arm.blas} before Python starts; an experiment's workers do that",
        )


def _check_alone(arm: Arm) -> None:
    """A session of its own shares its steps with nobody, so what says how they are shared has no effect."""
    if arm.batches:
        need = "an arm that states no policy, cap or KV budget was needed for a session of its own"
        step = "labkit.load(...).batch(policy=..., cap=...), whose sessions share their steps"
        raise PlanRefused(need, got=arm.label(), next_step=step)


def _check_vocabulary(prompt: str | Sequence[int], asked: Model, other: Model) -> None:
    """Text is encoded anew by whichever model runs; ids mean something in one vocabulary only."""
    if isinstance(prompt, str) or asked.path is None or other.path is None:
        return
    if vocabulary_hash(asked.tokenizer) != vocabulary_hash(other.tokenizer):
        raise RecipeInvalid(
            f"a prompt that {other.name}, the model of the recipe, reads as {asked.name} does was needed",
            got="token ids, and two vocabularies",
            next_step="give the prompt as text",
        )


def _check_free(options: Mapping[str, Any]) -> None:
    taken = [name for name in options if name in _ARMS]
    if taken:
        need = "options that an arm does not state were needed"
        raise PlanRefused(need, got=", ".join(taken), next_step=f"Arm(..., {taken[0]}=...)")


def _identity(model: str, sink: Sink) -> tuple[str, str]:
    """Family and fingerprint of a model; it is fetched where it is not here yet."""
    if is_null(model):
        profile = parse_null(model).profile
        return profile.family, profile.fingerprint
    artifact = measure(get(model, sink=sink), sink=sink)
    return artifact.family, artifact.fingerprint


def fingerprint_at_hand(model: str) -> str:
    """The fingerprint of a model that is here. Fetches nothing; raises ModelUnavailable where it is not."""
    return _identity(model if is_null(model) else str(find(model)), silent)[1]


def _at_hand(recipes: Sequence[Recipe]) -> dict[str, str]:
    """The models that recipes would put in place of an arm's, as far as they are here. Fetches nothing."""
    found = {}
    for name in {r.arm.model for r in recipes if "model" in changes(r)}:
        try:
            found[name] = fingerprint_at_hand(name)
        except LabkitError:
            continue  # not here, or damaged: the recipe then says that its model is not here
    return found


def _place(root: str | Path | None) -> Path:
    return find_lab() if root is None else Path(root)
