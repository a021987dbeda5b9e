"""Recipes: which promoted arm a request for `recipe="auto"`, or for one by name, gets, and why. Pure.

A recipe speaks for the composition that was measured, against its baseline: an arm that is not that baseline,
but for what the recipe sets, gets none, and what an arm states is never changed. Sampling comes after the
graph, so it may differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from labkit.core.arm import Arm, Workload
from labkit.core.decision import Recipe
from labkit.core.errors import RecipeInvalid

AUTO = "auto"
# A recipe speaks for lengths up to this factor longer or shorter than those it was measured on.
REACH = 2.0
# A class is named by its label, with the hash of its source.
_FIELDS = tuple(field.name for field in fields(Arm) if field.name not in ("recipe", "classes"))
_FREE = ("model", "sampling")
_DEFAULTS = Arm(model="")


@dataclass(frozen=True, slots=True)
class Situation:
    """Where an arm is to run. machine: slug. family, fingerprint: of its model. workload: what it is to do.

    models: the models at hand that recipes would put in its place, by name with their fingerprints.
    blas: the library of a process that is running already, which no recipe can change; None where it can.
    """

    machine: str
    family: str
    fingerprint: str
    workload: Workload
    models: Mapping[str, str] = field(default_factory=dict)
    blas: str | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """What an asked arm comes to. arm: without a recipe, ready to run. recipe: the one applied, if any.

    reason: lines that name it, or say why none applies, for `plan.explain()`; empty where none was asked for.
    """

    arm: Arm
    recipe: Recipe | None = None
    reason: str = ""


def choose(asked: Arm, recipes: Sequence[Recipe], where: Situation) -> Chosen:
    """The arm to run for an asked one: of all recipes that apply the one measured on the nearest workload.

    Raises RecipeInvalid where a recipe was asked for by name and does not apply, or is not there.
    """
    if asked.recipe is None:
        return Chosen(asked)
    plain, named = replace(asked, recipe=None), asked.recipe != AUTO
    known = [r for r in recipes if r.name == asked.recipe] if named else list(recipes)
    refused = {r.name: tuple(_hindrances(r, plain, where)) for r in known}
    fitting = [r for r in known if not refused[r.name]]
    if fitting:
        best = min(fitting, key=lambda r: (_distance(r.workload, where.workload), _newest_first(r), r.name))
        return Chosen(_laid_over(plain, best), best, _applied(best, where, fitting))
    reasons = "; ".join(f"{name}: {', '.join(why)}" for name, why in refused.items())
    if named:
        what = f"{plain.label()} at {where.workload.label()}"
        raise RecipeInvalid(
            f"a recipe {asked.recipe!r} that applies to {what} was needed",
            got=reasons or "no such recipe in experiments/promoted.toml",
            options=(AUTO, *sorted(r.name for r in recipes if r.name != asked.recipe)),
            next_step="an arm without recipe= runs as it is written",
        )
    return Chosen(plain, None, f"none applies, so the arm runs as written ({reasons or 'none is promoted'})")


def changes(recipe: Recipe) -> dict[str, Any]:
    """The fields in which the promoted arm differs from its baseline: what the recipe sets."""
    return {
        name: getattr(recipe.arm, name)
        for name in _FIELDS
        if getattr(recipe.arm, name) != getattr(recipe.baseline, name)
    }


def _laid_over(asked: Arm, recipe: Recipe) -> Arm:
    own = {name: getattr(asked, name) for name in _FREE if name not in changes(recipe)}
    return replace(recipe.arm, **own)


def _hindrances(recipe: Recipe, asked: Arm, where: Situation) -> Iterator[str]:
    """Every reason why a recipe does not apply."""
    if recipe.machine != where.machine:
        yield f"measured on {recipe.machine}"
    if recipe.family != where.family:
        yield f"for the family {recipe.family}"
    if not _reaches(recipe.workload, where.workload):
        yield f"measured at {recipe.workload.label()}, not near {where.workload.label()}"
    yield from _contradictions(recipe, asked)
    if "model" in changes(recipe) and where.models.get(recipe.arm.model) != recipe.fingerprint:
        here = "another artifact here" if recipe.arm.model in where.models else "not here"
        yield f"its model {recipe.arm.model} is {here}"
    blas = recipe.arm.blas
    if blas and where.blas is not None and blas != where.blas:
        yield f"it needs the {blas} BLAS, and this process runs on {where.blas}"


def _contradictions(recipe: Recipe, asked: Arm) -> Iterator[str]:
    """What an arm states that was not part of what was measured."""
    sets = changes(recipe)
    for name in _FIELDS:
        own, measured = getattr(asked, name), getattr(recipe.arm, name)
        usual = recipe.baseline.model if name == "model" else getattr(_DEFAULTS, name)
        fits = own in (usual, measured) if name in sets else name in _FREE or own == measured
        if not fits:
            yield f"measured with {name}={_said(measured)}, and the arm states {_said(own)}"


def _reaches(measured: Workload, asked: Workload) -> bool:
    lengths = ((measured.prompt_tokens, asked.prompt_tokens), (measured.new_tokens, asked.new_tokens))
    near = all(a <= REACH * b and b <= REACH * a for a, b in lengths)
    return near and _arriving(measured) == _arriving(asked)


def _arriving(workload: Workload) -> Workload:
    """When its requests come and how many at a time, without how long they are and what they should meet."""
    lengths = {"prompt_tokens": 1, "new_tokens": 1, "prompt_tokens_low": None, "new_tokens_low": None}
    free = {"seed": 0, "ttft_objective_s": None, "tpot_objective_s": None}
    return replace(workload.portable(), **lengths, **free)


def _distance(measured: Workload, asked: Workload) -> float:
    prompt, new = asked.prompt_tokens / measured.prompt_tokens, asked.new_tokens / measured.new_tokens
    return abs(math.log(prompt)) + abs(math.log(new))


def _newest_first(recipe: Recipe) -> tuple[int, ...]:
    return tuple(-ord(letter) for letter in recipe.decided_at)


def _applied(recipe: Recipe, where: Situation, fitting: Sequence[Recipe]) -> str:
    measured, asked = recipe.workload.label(), where.workload.label()
    near = "" if measured == asked else f", asked for {asked}"
    parts = [
        f"{recipe.name}, {recipe.outcome}, promoted {recipe.decided_at}: {', '.join(_set(recipe))}",
        f"measured on this machine class and family at {measured} tokens{near}",
        *_other_artifact(recipe, where),
        f"why: {recipe.why}",
        *recipe.conditions,
        f"evidence: {', '.join(e.run_id for e in recipe.evidence)}",
    ]
    others = [r.name for r in fitting if r is not recipe]
    if others:
        parts.append(f"nearer or newer than {', '.join(others)}")
    return "\n".join(parts)


def _set(recipe: Recipe) -> Iterator[str]:
    for name, value in changes(recipe).items():
        yield f"{name}={_said(value)} (not {_said(getattr(recipe.baseline, name))})"


def _other_artifact(recipe: Recipe, where: Situation) -> Iterator[str]:
    if "model" not in changes(recipe) and recipe.fingerprint != where.fingerprint:
        yield "measured on another artifact of the family"


def _said(value: Any) -> str:
    return "the default" if value is None else str(value)
