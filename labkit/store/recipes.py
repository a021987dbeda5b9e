"""Recipes: `experiments/promoted.toml`, one `[[recipe]]` a promoted experiment. Decides nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from labkit.core.arm import Arm, Workload
from labkit.core.canonical import plain, stated
from labkit.core.decision import Evidence, Recipe
from labkit.core.sampling import Sampling
from labkit.store import toml_entries as toml

HEAD = """\
# Recipes of promoted experiments: what Arm(model, recipe="auto") runs on that machine class and workload.
# Written by `labkit promote`, taken out by `delete` and `revalidate`. Comments and the order are kept."""
_TEXTS = ("name", "why", "machine", "family", "fingerprint", "outcome")
_STATED = ("name", "why", "decided_at", "machine", "family", "fingerprint", "outcome")
# A field of an arm or workload: what it must be, as TOML knows it.
_ARM: Mapping[str, type] = {
    **dict.fromkeys(("model", "kv", "blas", "method", "recipe", "policy"), str),
    **dict.fromkeys(("prefill_chunk", "cap", "kv_budget_bytes"), int),
}
# The most that a count of tokens or requests can be: far beyond any model, and a number that any index holds.
_MOST = 10**9
_OUTCOMES = ("supported", "trade-off")
_WORKLOAD: Mapping[str, type] = {
    **dict.fromkeys((field.name for field in fields(Workload)), int),
    **dict.fromkeys(("arrivals", "trace_sha256"), str),
    **dict.fromkeys(("rate_per_s", "ttft_objective_s", "tpot_objective_s"), float),
}


def promoted_path(root: Path | str) -> Path:
    """Where the recipes of a lab lie."""
    return Path(root) / "experiments" / "promoted.toml"


def read_recipes(root: Path | str) -> tuple[Recipe, ...]:
    """The recipes of a lab in the order of the file; none where there is no file.

    Raises RecipeInvalid, which names the file, the line or entry, and the reason.
    """
    return toml.read_named(promoted_path(root), "recipe", _recipe)


def add_recipe(root: Path | str, recipe: Recipe) -> None:
    """Append a recipe; everything that stands in the file already stays as it is."""
    toml.add_entry(promoted_path(root), "recipe", _entry(recipe), HEAD)


def remove_recipe(root: Path | str, name: str) -> None:
    """Withdraw a recipe; the rest of the file stays as it is."""
    toml.remove_entry(promoted_path(root), "recipe", name)


def _entry(recipe: Recipe) -> dict[str, Any]:
    """The fields of an entry; of workload and arms those that differ from the defaults."""
    return {
        **{name: getattr(recipe, name) for name in _STATED},
        "axes": list(recipe.axes),
        **({"conditions": list(recipe.conditions)} if recipe.conditions else {}),
        **{part: plain(stated(getattr(recipe, part))) for part in ("workload", "baseline", "arm")},
        "evidence": [plain(item) for item in recipe.evidence],
    }


def _recipe(entry: Mapping[str, Any]) -> Recipe:
    toml.check_fields(entry, {field.name for field in fields(Recipe)})
    recipe = Recipe(
        **{name: toml.words(entry, name) for name in _TEXTS},
        decided_at=toml.iso_date(entry, "decided_at"),
        workload=_workload(toml.table_of(entry, "workload")),
        baseline=_arm("baseline", toml.table_of(entry, "baseline")),
        arm=_arm("arm", toml.table_of(entry, "arm")),
        axes=toml.texts(entry, "axes"),
        evidence=tuple(_evidence(item) for item in toml.tables(entry, "evidence")),
        conditions=toml.texts(entry, "conditions"),
    )
    if recipe.outcome not in _OUTCOMES:
        raise ValueError(f"outcome: one of {', '.join(_OUTCOMES)} is needed, got {recipe.outcome!r}")
    return recipe


def _workload(data: Mapping[str, Any]) -> Workload:
    for name, value in _typed("workload", data, _WORKLOAD).items():
        if _WORKLOAD[name] is int:
            _check_count(f"workload.{name}", value, least=0 if name == "seed" else 1)
        elif _WORKLOAD[name] is float and not (_is_number(value) and value > 0):
            raise ValueError(f"workload.{name}: a number above 0 is needed, got {value!r}")
    return Workload(**data)


def _arm(part: str, data: Mapping[str, Any]) -> Arm:
    sampling = data.get("sampling", {})
    if not isinstance(sampling, dict):
        raise TypeError(f"{part}.sampling: a table is needed, got {sampling!r}")
    toml.check_fields(sampling, {field.name for field in fields(Sampling)})
    own = _typed(part, {k: v for k, v in data.items() if k != "sampling"}, _ARM)
    if not own.get("model"):
        raise ValueError(f"{part}.model: the name of a model is needed")
    if "recipe" in own:
        raise ValueError(f"{part}.recipe: an arm without a recipe of its own is needed")
    for name in ("prefill_chunk", "cap"):
        _check_count(f"{part}.{name}", own.get(name, 1), least=1)
    if own.get("kv_budget_bytes", 1) < 1:
        raise ValueError(f"{part}.kv_budget_bytes: at least 1 is needed, got {own['kv_budget_bytes']}")
    return Arm(**own, sampling=_sampling(f"{part}.sampling", sampling))


def _sampling(part: str, data: Mapping[str, Any]) -> Sampling:
    made = Sampling(**data)
    for name in data:
        value = getattr(made, name)
        if not (_is_number(value) or (isinstance(value, tuple) and all(map(_of_tokens, value)))):
            raise ValueError(f"{part}.{name}: a finite number is needed, got {value!r}")
    return made


def _of_tokens(item: Any) -> bool:
    """Whether it is a token's id, or one with its bias."""
    return _is_number(item) or (isinstance(item, tuple) and len(item) == 2 and all(map(_is_number, item)))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _check_count(where: str, value: int, least: int) -> None:
    if not least <= value <= _MOST:
        raise ValueError(f"{where}: a whole number from {least} to {_MOST} is needed, got {value!s:.40}")


def _typed(part: str, data: Mapping[str, Any], kinds: Mapping[str, type]) -> dict[str, Any]:
    """The values of a table whose fields are known and of the right type."""
    for name, value in data.items():
        if name not in kinds:
            raise ValueError(f"{part}.{name}: no such field; options: {', '.join(kinds)}")
        whole = kinds[name] is float and type(value) is int
        if type(value) is not kinds[name] and not whole:
            raise TypeError(f"{part}.{name}: {kinds[name].__name__} is needed, got {value!r}")
    return dict(data)


def _evidence(item: Mapping[str, Any]) -> Evidence:
    toml.check_fields(item, {field.name for field in fields(Evidence)})
    return Evidence(**{field.name: toml.words(item, field.name) for field in fields(Evidence)})
