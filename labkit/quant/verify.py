"""Verify: a quantized model directory opened again and held against what was planned."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from labkit.model.fingerprint import fingerprint
from labkit.model.graph import load_graph
from labkit.model.soundness import check_directory
from labkit.model.tensors import Tensor
from labkit.model.wording import first_names, one_line
from labkit.quant.choice import Choice
from labkit.quant.packing import Packing, QuantizationRefused

PROBE = 4  # tokens of the forward pass
_PACKED = "U32"
_WORD_BITS = 32


def verify(made: Path, choice: Choice) -> None:
    """Raise QuantizationRefused where a module is not stored as chosen, or a forward pass is not finite.

    Raises ModelUnavailable where labkit or mlx-lm cannot read the directory, or a weight is not finite.
    """
    tensors = check_directory(made)
    wrong = [p for p, packing in choice.packed.items() if not _stored(p, packing, choice.widths[p], tensors)]
    scaled = {name.removesuffix(".scales") for name in tensors if name.endswith(".scales")}
    wrong += sorted(scaled - set(choice.packed))
    if wrong:
        raise QuantizationRefused("modules stored as the recipe says were needed", got=first_names(wrong))
    fingerprint(made, settled_ns=0)
    _run(made)


def _stored(path: str, packing: Packing, width: int, tensors: Mapping[str, Tensor]) -> bool:
    """Whether the words, scales and biases on disk are those of a packing of rows of `width` weights."""
    weight, scales = tensors.get(f"{path}.weight"), tensors.get(f"{path}.scales")
    if weight is None or scales is None or weight.dtype != _PACKED:
        return False
    words, groups = weight.shape[-1], scales.shape[-1]
    affine = f"{path}.biases" in tensors and scales.dtype != "U8"
    return (
        words * _WORD_BITS == packing.bits * width
        and groups * packing.group_size == width
        and affine == (packing.mode == "affine")
    )


def _run(made: Path) -> None:
    """A few tokens through what mlx-lm loads of the directory. Some models mask tokens with -inf."""
    import mlx.core as mx

    graph, _ = load_graph(made)
    try:
        finite = mx.isfinite(mx.logsumexp(graph(mx.arange(PROBE)[None]), axis=-1)).all().item()
    except Exception as error:  # a graph may read a weight past its module, which is packed now
        raise QuantizationRefused(
            "a quantized model that mlx-lm can run was needed",
            got=f"{type(error).__name__}: {one_line(error)}",
            next_step="keep the layer that this is about, such as LayerRule('*embed_tokens', keep=True)",
        ) from error
    if not finite:
        need = "finite logits of the quantized model were needed"
        raise QuantizationRefused(need, got="NaN or infinity", next_step="more bits, or another mode")
