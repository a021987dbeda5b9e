"""Tensors on disk: what the safetensors headers of a model directory say.

Knows the file format only; not what a tensor means (`artifact`) nor where it came from (`gguf`).
Format: https://github.com/huggingface/safetensors (8-byte length, JSON header, data).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labkit.core.errors import ModelUnavailable
from labkit.model.header import BITS, read_header
from labkit.model.shards import INDEX, check_files, check_places, damaged_shards, read_index
from labkit.model.wording import one_line

WEIGHTS_GLOB = "model*.safetensors"
FLOATS: Mapping[str, str] = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3",
    "F8_E5M2": "float8_e5m2",
}
# The dtypes that labkit writes. Whole numbers are written as they were read.
WRITTEN: Mapping[str, str] = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
WHOLE: Mapping[str, str] = {"uint32": "U32", "int32": "I32", "int64": "I64", "uint8": "U8", "bool": "BOOL"}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor as its header states it. dtype: safetensors code. start: byte offset of the data in file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    nbytes: int

    @property
    def size(self) -> int:
        """Elements as stored."""
        return math.prod(self.shape)


def read_directory(directory: Path) -> dict[str, Tensor]:
    """Every tensor of the weight files that mlx-lm loads, by name, sorted.

    Raises ModelUnavailable where there is none, a file is damaged, two files hold one name, or the index
    of shards does not agree with them.
    """
    files = sorted(directory.glob(WEIGHTS_GLOB))
    index = read_index(directory / INDEX)
    check_files(index, [f.name for f in files], directory)
    found: dict[str, Tensor] = {}
    for tensor in (t for f in files for t in read_file(f)):
        if tensor.name in found:
            places = f"{found[tensor.name].file.name} and {tensor.file.name}"
            raise damaged_shards(f"{one_line(tensor.name)} in both {places}")
        found[tensor.name] = tensor
    check_places(index, {name: t.file.name for name, t in found.items()})
    return dict(sorted(found.items()))


def read_file(file: Path) -> list[Tensor]:
    """The tensors of one safetensors file. Raises ModelUnavailable where it is damaged or cut short."""
    try:
        entries = read_header(file)
    except (OSError, ValueError) as error:
        raise ModelUnavailable(
            f"a complete safetensors file was needed: {file.name}",
            got=one_line(error),
            next_step="fetch the model again",
        ) from error
    return [Tensor(n, e.dtype, e.shape, file, e.begin, e.end - e.begin) for n, e in entries.items()]


def read_data(tensor: Tensor, chunk_bytes: int = 1 << 22) -> Iterator[bytes]:
    """The bytes of a tensor, in chunks."""
    with tensor.file.open("rb") as stream:
        stream.seek(tensor.start)
        left = tensor.nbytes
        while left and (block := stream.read(min(chunk_bytes, left))):
            left -= len(block)
            yield block


def check_dtype(dtype: str) -> str:
    """The dtype, where an import can store it. Raises ModelUnavailable with the ones it can."""
    if dtype not in WRITTEN:
        raise ModelUnavailable("a dtype for the weights was needed", got=dtype, options=tuple(WRITTEN))
    return dtype


def nbytes(shape: Sequence[int], dtype: str) -> int:
    """Bytes that a tensor takes in a dtype that `check_dtype` passes."""
    return math.prod(shape) * BITS[WRITTEN[dtype]] // 8


def round_to_bfloat16(array: np.ndarray) -> np.ndarray:
    """float32 of any shape -> the uint16 bit patterns of bfloat16, rounded to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    kept = bits >> 16
    rounded = (bits + (np.uint32(0x7FFF) + (kept & np.uint32(1)))) >> 16
    return np.where(np.isnan(array), kept | np.uint32(0x40), rounded).astype(np.uint16)
