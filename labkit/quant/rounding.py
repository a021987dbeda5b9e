"""Rounding: the quantizer that rounds every weight to the nearest code, through MLX's own quantization."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from labkit.core.events import Sink, silent
from labkit.model.artifact import Artifact
from labkit.model.wording import one_line
from labkit.quant.evidence import Evidence
from labkit.quant.packing import Packing, QuantizationRefused
from labkit.quant.quantizer import QuantizerSpec, Source
from labkit.quant.recipe import QuantRecipe
from labkit.quant.write import write_artifact


class Rounding:
    """Round to nearest. Its oracle is `mlx_lm.utils.quantize_model`, bit for bit at the same settings."""

    SPEC: ClassVar[QuantizerSpec] = QuantizerSpec("round", "round to nearest, group by group")

    def calibrate(self, model: Source, text: str | None = None) -> Evidence:
        """Nothing is measured. Raises QuantizationRefused for a text, which would be without effect."""
        if text is not None:
            raise QuantizationRefused(
                "no calibration text was needed for round", got=f"{len(text)} characters"
            )
        return Evidence(self.SPEC.name, model.artifact.fingerprint)

    def apply(
        self,
        model: Source,
        recipe: QuantRecipe,
        evidence: Evidence,
        *,
        into: Path,
        sink: Sink = silent,
    ) -> Artifact:
        """Write the artifact; raises as `write_artifact` does."""
        return write_artifact(model, recipe, self.SPEC, evidence, pack_to_nearest, into=into, sink=sink)


def pack_to_nearest(graph: Any, packed: Mapping[str, Packing]) -> None:
    """Pack modules of a graph in place, lazily; what is not named stays as it is.

    Source: mlx.nn.quantize, which asks each module for its packed form. Tied output matrices are packed with
    the embedding they are. Raises QuantizationRefused for a module that has no such form.
    """
    from mlx import nn

    try:
        nn.quantize(
            graph, class_predicate=lambda path, _: packed[path].settings() if path in packed else False
        )
    except (TypeError, ValueError) as error:
        need = "layers that mlx-lm can pack in this mode were needed"
        raise QuantizationRefused(need, got=f"{type(error).__name__}: {one_line(error)}") from error
