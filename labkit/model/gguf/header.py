"""The GGUF container: what its header says and where its tensors lie. Versions 2 and 3, little-endian.

Knows nothing of models. Nothing the file states is believed before the file's size bears it out, so a damaged
or hostile file is refused in little time and memory. Format: the GGUF specification in the ggml repository.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGUF_MAGIC, GGMLQuantizationType

from labkit.core.errors import ModelUnavailable
from labkit.model.gguf.cursor import MAX_HEADER_BYTES, Cursor, Damaged

VERSIONS = (2, 3)
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 16
MAX_KEY_BYTES = (1 << 16) - 1
MAX_NAME_BYTES = 255
MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 1 << 20
_LEAST_FILE, _LEAST_KEY, _LEAST_TENSOR = 24, 14, 33
_DEFAULT_ALIGNMENT = 32
_TYPES: Mapping[int, GGMLQuantizationType] = {t.value: t for t in GGMLQuantizationType}


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """One tensor as the header states it. shape: row-major, `(out, in)`. start: byte offset in the file."""

    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]
    file: Path
    start: int

    @property
    def rows(self) -> int:
        """Rows of the last dimension's length."""
        return prod(self.shape[:-1])

    @property
    def row_bytes(self) -> int:
        """Bytes of one row as stored."""
        block, nbytes = GGML_QUANT_SIZES[self.type]
        return self.shape[-1] // block * nbytes

    @property
    def nbytes(self) -> int:
        """Bytes as stored."""
        return self.rows * self.row_bytes

    def map(self) -> np.ndarray:
        """The stored bytes, uint8 `(rows, row_bytes)`, memory-mapped; unmapped when nothing holds them."""
        return np.memmap(self.file, np.uint8, "r", self.start, (self.rows, self.row_bytes))


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """One file. metadata: every key with its Python value. tensors: by name, in the order of the header."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GGUFTensor]


def read_header(path: Path) -> GGUFHeader:
    """Parse a file. Raises ModelUnavailable with one message where it is no whole GGUF file."""
    try:
        if not path.is_file():  # a pipe would be waited for
            raise Damaged("not a file" if path.exists() else "no such file")
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            if size < _LEAST_FILE:
                raise Damaged(f"{size} bytes")
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _parse(path, Cursor(data, min(size, MAX_HEADER_BYTES)), size)
    except (ValueError, OSError) as error:
        raise ModelUnavailable(
            f"a complete GGUF file was needed: {path.name}",
            got=error,
            next_step="download the file again, or name another",
        ) from error


def _parse(path: Path, cursor: Cursor, size: int) -> GGUFHeader:
    _check_version(cursor)
    tensor_count = cursor.count(MAX_TENSORS, _LEAST_TENSOR, "tensors")
    metadata = _metadata(cursor, cursor.count(MAX_KEYS, _LEAST_KEY, "metadata keys"))
    stated = [_tensor(cursor, path) for _ in range(tensor_count)]
    if len({t.name for t in stated}) < len(stated):
        raise Damaged(f"two tensors of one name, among {len(stated)}")
    alignment = _alignment(metadata)
    start = _aligned(cursor.at, alignment)
    _check_layout(stated, alignment, size - start)
    placed = (GGUFTensor(t.name, t.type, t.shape, path, start + t.start) for t in stated)
    return GGUFHeader(path, metadata, {t.name: t for t in placed})


def _check_version(cursor: Cursor) -> None:
    magic, version = cursor.u32(), cursor.u32()
    if magic != GGUF_MAGIC:
        raise Damaged(f"a file that begins with {magic.to_bytes(4, 'little')!r}")
    if int.from_bytes(version.to_bytes(4, "big"), "little") in VERSIONS:
        raise Damaged("a big-endian file; labkit reads little-endian ones")
    if version not in VERSIONS:
        raise Damaged(f"GGUF version {version}; labkit reads {' and '.join(map(str, VERSIONS))}")


def _metadata(cursor: Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.name("a metadata key", MAX_KEY_BYTES)
        if key in metadata:
            raise Damaged(f"the metadata key {key[:80]} twice")
        metadata[key] = cursor.value(key[:80])
    return metadata


def _tensor(cursor: Cursor, path: Path) -> GGUFTensor:
    """A tensor whose `start` still counts from the data section."""
    name = cursor.name("a tensor name", MAX_NAME_BYTES)
    dimensions = cursor.u32()
    if not 0 < dimensions <= MAX_DIMENSIONS:
        raise Damaged(f"{dimensions} dimensions of {name}")
    shape = tuple(reversed([cursor.u64() for _ in range(dimensions)]))
    code, start = cursor.u32(), cursor.u64()
    if code not in _TYPES:
        raise Damaged(f"the unknown tensor type {code} of {name}")
    block = GGML_QUANT_SIZES[_TYPES[code]][0]
    if 0 in shape or shape[-1] % block:
        raise Damaged(f"{name} of {list(shape)}, in {_TYPES[code].name} blocks of {block}")
    return GGUFTensor(name, _TYPES[code], shape, path, start)


def _alignment(metadata: Mapping[str, Any]) -> int:
    value = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(value) is not int or not 0 < value <= MAX_ALIGNMENT or value & (value - 1):
        raise Damaged(f"general.alignment {str(value)[:64]!a}; it is a power of two")
    return value


def _check_layout(tensors: Sequence[GGUFTensor], alignment: int, available: int) -> None:
    """Every tensor begins where another ends, up to the alignment, and the last ends the file."""
    expected = 0
    for tensor in sorted(tensors, key=lambda t: t.start):
        if tensor.start != expected:
            raise Damaged(f"{tensor.name} at offset {tensor.start}, where {expected} was expected")
        end = tensor.start + tensor.nbytes
        if end > available:
            raise Damaged(f"{tensor.name} ends {end - available} bytes past the end of the file")
        expected = _aligned(end, alignment)
    if available > expected:
        raise Damaged(f"{available - expected} bytes behind the last tensor")


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
