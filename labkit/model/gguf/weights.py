"""Weights of GGUF files: stored rows as numbers, block by block, and which tensor types can be read at all.

Memory is bounded by a block of rows beside the pages of one mapped tensor. Numbers that no trained weight has
(NaN, infinities, absurd magnitudes) are refused by the tensor's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from labkit.core.errors import ModelUnavailable
from labkit.model.gguf.header import GGUFTensor
from labkit.model.gguf.pack import SYMMETRIC

MAX_MAGNITUDE = 1e6
_LARGEST: Mapping[str, float] = {"float16": 65504.0}
_BLOCK = 1 << 20
Order = Callable[[np.ndarray], np.ndarray]


def check_types(tensors: Iterable[GGUFTensor]) -> None:
    """Raise ModelUnavailable for the first tensor whose type gguf cannot dequantize, by name."""
    known: dict[GGMLQuantizationType, bool] = {}
    for tensor in tensors:
        if tensor.type not in known:
            known[tensor.type] = is_readable(tensor.type)
        if not known[tensor.type]:
            raise ModelUnavailable(
                f"a tensor type that labkit imports was needed: {tensor.name}",
                got=tensor.type.name,
                options=[t.name for t in GGMLQuantizationType if is_readable(t)],
                next_step="use a version of the model in another quantization",
            )


def is_readable(kind: GGMLQuantizationType) -> bool:
    """Whether gguf dequantizes a type; tried on one block of zeros."""
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


def stored_blocks(tensor: GGUFTensor, reorder: Order | None = None) -> Iterator[np.ndarray]:
    """The stored bytes, uint8 `(n, row_bytes)` a block, copied out of the file.

    reorder: `(rows, 1)` -> `(rows, 1)` with the same rows in another order; applied to the row numbers.
    """
    mapped = tensor.map()
    order = None if reorder is None else reorder(np.arange(tensor.rows)[:, None]).reshape(-1)
    step = max(1, _BLOCK // tensor.shape[-1])
    for at in range(0, tensor.rows, step):
        block = mapped[at : at + step] if order is None else mapped[order[at : at + step]]
        yield np.array(block)


def values(block: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    """float32 `(n, in)` of stored rows, as gguf computes them.

    Zeros of the types in `pack.SYMMETRIC` are +0.0, so that a packed import is equal to the bit.
    """
    with np.errstate(all="ignore"):
        array = dequantize(block, kind)
    return array + np.float32(0) if kind in SYMMETRIC else array


def read_small(tensor: GGUFTensor) -> np.ndarray:
    """All values of a tensor that is small, float32 of its shape."""
    blocks = [checked(values(b, tensor.type), tensor.name) for b in stored_blocks(tensor)]
    return np.concatenate(blocks).reshape(tensor.shape)


def checked(array: np.ndarray, name: str, dtype: str = "float32") -> np.ndarray:
    """The array, where every value can be a weight and fits the dtype. Raises ModelUnavailable otherwise."""
    limit = _LARGEST.get(dtype, MAX_MAGNITUDE)
    peak = max(array.max(), -array.min())
    if not peak <= limit:
        raise ModelUnavailable(
            f"finite weights of at most {limit:g} were needed for {dtype}: {name}",
            got="not a number" if np.isnan(array).any() else f"{peak:g}",
            next_step="download the file again, or use another version of the model",
        )
    return array
