"""Choice: which modules of a graph get which packing, and which keep their weights and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from labkit.model.wording import first_names
from labkit.quant.packing import Packing, QuantizationRefused
from labkit.quant.recipe import QuantRecipe


@dataclass(frozen=True, slots=True)
class Choice:
    """packed, kept: paths of mlx-lm's modules -> the packing, or why not. All that could be packed is in one.

    widths: path of a packed module -> weights in a row.
    """

    packed: Mapping[str, Packing]
    kept: Mapping[str, str]
    widths: Mapping[str, int]


def choose(graph: Any, recipe: QuantRecipe) -> Choice:
    """Lay a recipe over a graph; nothing is changed.

    A rule counts most, then mlx-lm's own exceptions for the architecture (`quant_predicate`, such as expert
    routers at 8 bits), then the recipe's packing. Raises QuantizationRefused for a rule that fits no layer,
    rows that a group size does not divide, and where nothing would be packed.
    """
    modules = dict(_packable(graph))
    _check_rules(recipe, modules)
    packed, kept, refused = dict[str, Packing](), dict[str, str](), list[str]()
    upstream = getattr(graph, "quant_predicate", None)
    for path, module in modules.items():
        packing = _wanted(path, module, recipe, upstream)
        if isinstance(packing, str):
            kept[path] = packing
        elif module.weight.shape[-1] % packing.group_size:
            kept[path] = f"groups of {packing.group_size} do not divide rows of {module.weight.shape[-1]}"
            refused.append(path)
        else:
            packed[path] = packing
    _check_divisible(refused, kept, recipe)
    if not packed:
        raise QuantizationRefused(
            "at least one layer to quantize was needed", got=first_names(kept) or "none"
        )
    return Choice(packed, kept, {path: modules[path].weight.shape[-1] for path in packed})


def _packable(graph: Any) -> Iterator[tuple[str, Any]]:
    """The leaf modules that MLX can quantize, by path, sorted. Refuses a graph with packed ones."""
    from mlx.utils import tree_flatten

    leaves: Any = tree_flatten(graph.leaf_modules(), is_leaf=lambda m: hasattr(m, "parameters"))
    packed = [path for path, module in leaves if "scales" in module]
    if packed:
        need = "a model whose weights are not quantized was needed"
        raise QuantizationRefused(need, got=first_names(packed), next_step="take the model it was made of")
    return iter(sorted(((p, m) for p, m in leaves if hasattr(m, "to_quantized")), key=lambda pair: pair[0]))


def _wanted(
    path: str, module: Any, recipe: QuantRecipe, upstream: Callable[[str, Any], Any] | None
) -> Packing | str:
    """The packing of a module, or why it keeps its weights."""
    rule = recipe.rule(path)
    if rule is not None:
        return "kept by the recipe" if rule.keep else rule.packing(recipe.packing)
    answer = upstream(path, module) if upstream else True
    if not answer:
        return "kept by mlx-lm for this architecture"
    if isinstance(answer, Mapping):
        return Packing.of(answer.get("mode", "affine"), answer.get("bits"), answer.get("group_size"))
    return recipe.packing


def _check_rules(recipe: QuantRecipe, modules: Mapping[str, Any]) -> None:
    idle = [r.pattern for r in recipe.layers if not any(fnmatchcase(p, r.pattern) for p in modules)]
    if idle:
        raise QuantizationRefused(
            "patterns that fit a layer were needed",
            got=first_names(idle),
            options=(first_names(modules, 8),),
        )


def _check_divisible(refused: list[str], kept: Mapping[str, str], recipe: QuantRecipe) -> None:
    """Named by a rule or not, what does not divide is kept only where the recipe says so."""
    if refused and recipe.indivisible == "refuse":
        raise QuantizationRefused(
            "rows that the group size divides were needed",
            got=f"{first_names(refused)}: {kept[refused[0]]}",
            next_step='a smaller group_size, or indivisible="keep" to leave these layers as they are',
        )
