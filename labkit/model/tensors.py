"""Tensors on disk: what the safetensors headers of a model directory say, and a writer that streams.

Knows the file format only; not what a tensor means (`artifact`) nor where it came from (`gguf`).
Format: https://github.com/huggingface/safetensors (8-byte length, JSON header, data).
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from labkit.core.errors import ModelUnavailable

WEIGHTS_GLOB = "model*.safetensors"
INDEX = "model.safetensors.index.json"
BITS: Mapping[str, int] = {
    **dict.fromkeys(("F64", "I64", "U64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    "F4": 4,
}
FLOATS: Mapping[str, str] = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3",
    "F8_E5M2": "float8_e5m2",
}
_CODES: Mapping[str, str] = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
_MAX_HEADER = 100_000_000
_BLOCK = 1 << 22


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

    Raises ModelUnavailable where there is none, a shard of the index is missing or a file is damaged.
    """
    files = sorted(directory.glob(WEIGHTS_GLOB))
    missing = _indexed_files(directory) - {f.name for f in files}
    if missing or not files:
        raise ModelUnavailable(
            f"weights ({WEIGHTS_GLOB}) were needed in the model directory",
            got=f"missing {', '.join(sorted(missing))}" if missing else f"none in {directory}",
            next_step="fetch the model again, or name the directory that holds its weights",
        )
    return {t.name: t for t in sorted((t for f in files for t in read_file(f)), key=lambda t: t.name)}


def read_file(file: Path) -> list[Tensor]:
    """The tensors of one safetensors file. Raises ModelUnavailable where it is damaged or cut short."""
    try:
        with file.open("rb") as stream:
            header, base = _read_header(stream)
        tensors = [_tensor(n, e, file, base) for n, e in header.items() if n != "__metadata__"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise _damaged(file, str(error)) from error
    if any(t.start + t.nbytes > file.stat().st_size for t in tensors):
        raise _damaged(file, f"{file.stat().st_size} bytes, fewer than its header lists")
    return tensors


def read_data(tensor: Tensor, chunk_bytes: int = 1 << 22) -> Iterator[bytes]:
    """The bytes of a tensor, in chunks."""
    with tensor.file.open("rb") as stream:
        stream.seek(tensor.start)
        left = tensor.nbytes
        while left and (block := stream.read(min(chunk_bytes, left))):
            left -= len(block)
            yield block


def check_dtype(dtype: str) -> str:
    """The dtype, where `write_file` can store it. Raises ModelUnavailable with the ones it can."""
    if dtype not in _CODES:
        raise ModelUnavailable("a dtype for the weights was needed", got=dtype, options=tuple(_CODES))
    return dtype


def nbytes(shape: Sequence[int], dtype: str) -> int:
    """Bytes that a tensor takes in a dtype that `check_dtype` passes."""
    return math.prod(shape) * BITS[_CODES[dtype]] // 8


def write_file(
    file: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str, arrays: Iterable[np.ndarray]
) -> None:
    """Write tensors of one dtype, one array at a time, with the metadata that mlx writes.

    shapes: name -> shape, in the order in which `arrays` yields float32 arrays of exactly these shapes.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    offset = 0
    for name, shape in shapes.items():
        end = offset + nbytes(shape, dtype)
        header[name] = {"dtype": _CODES[dtype], "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for (name, shape), array in zip(shapes.items(), arrays, strict=True):
            assert array.shape == shape, f"{name}: {array.shape} is not {shape}"
            flat = array.reshape(-1)
            for at in range(0, flat.size, _BLOCK):
                stream.write(_encode(flat[at : at + _BLOCK], dtype).data)


def round_to_bfloat16(array: np.ndarray) -> np.ndarray:
    """float32 of any shape -> the uint16 bit patterns of bfloat16, rounded to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    kept = bits >> 16
    rounded = (bits + (np.uint32(0x7FFF) + (kept & np.uint32(1)))) >> 16
    return np.where(np.isnan(array), kept | np.uint32(0x40), rounded).astype(np.uint16)


def _encode(array: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        return round_to_bfloat16(array)
    return array.astype({"float32": "<f4", "float16": "<f2"}[dtype], copy=False)


def _read_header(stream: IO[bytes]) -> tuple[dict[str, Any], int]:
    (length,) = struct.unpack("<Q", stream.read(8))
    if length > _MAX_HEADER:
        raise ValueError(f"a header of {length} bytes")
    return json.loads(stream.read(length)), 8 + length


def _tensor(name: str, entry: Mapping[str, Any], file: Path, base: int) -> Tensor:
    begin, end = entry["data_offsets"]
    tensor = Tensor(name, entry["dtype"], tuple(entry["shape"]), file, base + begin, end - begin)
    if tensor.nbytes * 8 != tensor.size * BITS[tensor.dtype]:
        raise ValueError(f"{name}: {tensor.nbytes} bytes do not fit {tensor.dtype} {list(tensor.shape)}")
    return tensor


def _indexed_files(directory: Path) -> set[str]:
    try:
        index = json.loads((directory / INDEX).read_text())
        return set(index["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()


def _damaged(file: Path, got: str) -> ModelUnavailable:
    return ModelUnavailable(
        f"a complete safetensors file was needed: {file.name}",
        got=got,
        next_step="fetch the model again",
    )
