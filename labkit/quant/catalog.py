"""The catalog of quantizers, and the one call that calibrates, applies and measures."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from labkit.core.events import Sink, silent
from labkit.model.artifact import Artifact
from labkit.quant.evidence import Evidence
from labkit.quant.packing import QuantizationRefused
from labkit.quant.quantizer import Quantizer, QuantizerSpec, Source
from labkit.quant.recipe import QuantRecipe
from labkit.quant.rounding import Rounding

QUANTIZERS: tuple[type[Quantizer], ...] = (Rounding,)


def quantize(
    model: Source,
    recipe: QuantRecipe,
    *,
    into: str | Path,
    text: str | None = None,
    evidence: Evidence | None = None,
    quantizer: Quantizer | type[Quantizer] | None = None,
    sink: Sink = silent,
) -> Artifact:
    """Quantize the weights of a model into a new directory, and return what was measured of it there.

    model: from `labkit.load`, of unquantized weights; it is not changed. text: for calibration, where the
    method needs it. evidence: of an earlier calibration in its place. quantizer: one's own class with a SPEC;
    None takes labkit's by the recipe's method. Raises QuantizationRefused, before any work, for what does not
    fit together, and where what was written is not what was planned; LabkitError where the disk is too full.
    """
    _check_types(model, recipe)
    chosen = find_quantizer(recipe.method if quantizer is None else quantizer)
    chosen.SPEC.check(recipe)
    if evidence is not None and text is not None:
        raise QuantizationRefused("either a calibration text or its evidence was needed", got="both")
    if evidence is None and chosen.SPEC.needs_calibration and not (text or "").strip():
        raise QuantizationRefused(f"a calibration text was needed for {chosen.SPEC.name}", got=repr(text))
    found = chosen.calibrate(model, text) if evidence is None else evidence
    return chosen.apply(model, recipe, found, into=Path(into), sink=sink)


def _check_types(model: Any, recipe: Any) -> None:
    """Raise QuantizationRefused for a name or text where the thing itself is needed."""
    if not isinstance(getattr(model, "artifact", None), Artifact):
        next_step = f"labkit.load({model!r})" if isinstance(model, str | Path) else None
        raise QuantizationRefused("a loaded model was needed", got=type(model).__name__, next_step=next_step)
    if not isinstance(recipe, QuantRecipe):
        next_step = "labkit.QuantRecipe(bits=4), or labkit.QuantRecipe.from_toml(text)"
        raise QuantizationRefused("a QuantRecipe was needed", got=type(recipe).__name__, next_step=next_step)


def find_quantizer(quantizer: str | Quantizer | type[Quantizer]) -> Quantizer:
    """The quantizer of a name, class or instance. Raises QuantizationRefused for what is none of them."""
    known = {q.SPEC.name: q for q in QUANTIZERS}
    if isinstance(quantizer, str):
        if quantizer not in known:
            need = "a quantizer that labkit knows was needed"
            raise QuantizationRefused(need, got=quantizer, options=tuple(known))
        return known[quantizer]()
    made: Any = quantizer() if inspect.isclass(quantizer) else quantizer
    if not isinstance(getattr(made, "SPEC", None), QuantizerSpec):
        got = getattr(quantizer, "__name__", type(quantizer).__name__)
        next_step = "pass a class with SPEC, calibrate and apply, as labkit.quant.quantizer.Quantizer says"
        raise QuantizationRefused(
            "a quantizer was needed", got=got, options=tuple(known), next_step=next_step
        )
    return made
