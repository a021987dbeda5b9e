"""A writer of safetensors files whose tensors have dtypes of their own and arrive piece by piece.

Knows the file format only. Pieces of several tensors may arrive in any turn; each fills its own place.
Format: https://github.com/huggingface/safetensors (8-byte length, JSON header, data).
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from labkit.model.header import BITS
from labkit.model.tensors import WHOLE, WRITTEN, round_to_bfloat16

_CODES: Mapping[str, str] = {**WRITTEN, **WHOLE}
_BLOCK = 1 << 22


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one tensor. dtype: a float of 16 or 32 bits, or whole numbers, kept as they are."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes as stored."""
        return math.prod(self.shape) * BITS[_CODES[self.dtype]] // 8


class TensorWriter:
    """An open file. Every tensor must have got all its elements when it is closed."""

    def __init__(self, stream: IO[bytes], slots: Mapping[str, Slot]) -> None:
        self._stream = stream
        self._slots = slots
        self._places, self._ends = _write_header(stream, slots)

    def append(self, name: str, array: np.ndarray) -> None:
        """Write the next elements of a tensor in its dtype.

        Floats are rounded to it; whole numbers and truth values, of 8 to 64 bits, keep their values.
        """
        dtype = self._slots[name].dtype
        flat = array.reshape(-1)
        self._stream.seek(self._places[name])
        for at in range(0, flat.size, _BLOCK):
            block = _encode(flat[at : at + _BLOCK], dtype)
            self._places[name] += block.nbytes
            assert self._places[name] <= self._ends[name], f"too many elements of {name}"
            self._stream.write(block.data)

    def check_whole(self) -> None:
        """Internal invariant: nothing is missing."""
        short = [name for name, place in self._places.items() if place != self._ends[name]]
        assert not short, f"not all elements of {short[:4]}"


@contextmanager
def write_tensors(file: Path, slots: Mapping[str, Slot]) -> Iterator[TensorWriter]:
    """A writer of a new file with the metadata that mlx writes; tensors lie in the order of `slots`."""
    with file.open("wb") as stream:
        writer = TensorWriter(stream, slots)
        yield writer
        writer.check_whole()


def _write_header(stream: IO[bytes], slots: Mapping[str, Slot]) -> tuple[dict[str, int], dict[str, int]]:
    """Write what a file begins with; where each tensor begins and ends in it."""
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    offsets, offset = dict[str, int](), 0
    for name, slot in slots.items():
        offsets[name], end = offset, offset + slot.nbytes
        header[name] = {
            "dtype": _CODES[slot.dtype],
            "shape": list(slot.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    stream.write(struct.pack("<Q", len(text)) + text)
    begins = {name: 8 + len(text) + at for name, at in offsets.items()}
    return begins, {name: begins[name] + slot.nbytes for name, slot in slots.items()}


def _encode(array: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        return round_to_bfloat16(array)
    return np.ascontiguousarray(array.astype(np.dtype(dtype).newbyteorder("<"), copy=False))
