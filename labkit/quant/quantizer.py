"""Quantizer: the contract of every way to quantize weights; a class of one's own keeps it as well."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from labkit.core.events import Sink
from labkit.model.artifact import Artifact
from labkit.quant.evidence import Evidence
from labkit.quant.packing import MODES, Mode, QuantizationRefused
from labkit.quant.recipe import QuantRecipe


class Source(Protocol):
    """What a quantizer needs of a model, such as `labkit.load` gives; its graph is never changed.

    path: the directory of its weights, None for a null model.
    """

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> Path | None: ...
    @property
    def artifact(self) -> Artifact: ...


@dataclass(frozen=True, slots=True)
class QuantizerSpec:
    """modes: the formats it can round to, with their bits and group sizes.

    options: the names that it reads of a recipe's options.
    """

    name: str
    summary: str
    modes: tuple[Mode, ...] = tuple(MODES.values())
    needs_calibration: bool = False
    options: tuple[str, ...] = ()

    def check(self, recipe: QuantRecipe) -> None:
        """Raise QuantizationRefused for a recipe of another method, or with what this one cannot do."""
        if recipe.method != self.name:
            raise QuantizationRefused(f"a recipe for {self.name} was needed", got=f"method {recipe.method}")
        unknown = sorted(set(recipe.options) - set(self.options))
        if unknown:
            need = f"options of {self.name} were needed"
            raise QuantizationRefused(need, got=", ".join(unknown), options=self.options or ("none",))
        known = {mode.name: mode for mode in self.modes}
        rules = [rule for rule in recipe.layers if not rule.keep]
        for p in (recipe.packing, *(rule.packing(recipe.packing) for rule in rules)):
            mode = known.get(p.mode)
            if mode is None or p.bits not in mode.bits or p.group_size not in mode.group_sizes:
                options = [f"{m.name} {sorted(m.bits)} by {sorted(m.group_sizes)}" for m in self.modes]
                got = f"{p.mode}, {p.bits} bits, groups of {p.group_size}"
                raise QuantizationRefused(
                    f"a packing that {self.name} makes was needed", got=got, options=options
                )


class Quantizer(Protocol):
    """A way from weights to fewer bits. Instances hold no state between calls."""

    SPEC: ClassVar[QuantizerSpec]

    def calibrate(self, model: Source, text: str | None) -> Evidence:
        """Measure the model on a text. text: None for a method whose SPEC needs no calibration."""
        ...

    def apply(
        self, model: Source, recipe: QuantRecipe, evidence: Evidence, *, into: Path, sink: Sink
    ) -> Artifact:
        """Write the artifact to `into`, whole or not at all, and measure it there."""
        ...
