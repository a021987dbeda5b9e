"""Values of a GGUF header, read within bounds: a stated count or length is believed when the bytes are there.

Knows how numbers, texts and arrays are stored, not which of them a header holds.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gguf.constants import GGUFValueType

# Real headers stay below 20 MB and 1.4 million elements (262,144 tokens with scores, types and merges).
MAX_HEADER_BYTES = 3 << 24
MAX_ELEMENTS = 3 << 19
MAX_DEPTH = 4
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_TYPES: Mapping[int, GGUFValueType] = {t.value: t for t in GGUFValueType}
_NUMBERS: Mapping[GGUFValueType, str] = {
    GGUFValueType.UINT8: "u1",
    GGUFValueType.INT8: "i1",
    GGUFValueType.UINT16: "<u2",
    GGUFValueType.INT16: "<i2",
    GGUFValueType.UINT32: "<u4",
    GGUFValueType.INT32: "<i4",
    GGUFValueType.UINT64: "<u8",
    GGUFValueType.INT64: "<i8",
    GGUFValueType.FLOAT32: "<f4",
    GGUFValueType.FLOAT64: "<f8",
    GGUFValueType.BOOL: "u1",
}
# The least that one element takes: a text its length, a nested array its type and length.
_LEAST: Mapping[GGUFValueType, int] = {
    **{kind: np.dtype(code).itemsize for kind, code in _NUMBERS.items()},
    GGUFValueType.STRING: 8,
    GGUFValueType.ARRAY: 12,
}


class Damaged(ValueError):
    """What is wrong with the bytes of a file."""


@dataclass(slots=True)
class Cursor:
    """A place in the header. end: the first byte that cannot belong to it. elements: of arrays, so far.

    Every method raises Damaged where the bytes do not hold what is asked for.
    """

    data: mmap.mmap
    end: int
    at: int = 0
    elements: int = 0

    def u32(self) -> int:
        return _U32.unpack_from(self.data, self._advance(4, "a number"))[0]

    def u64(self) -> int:
        return _U64.unpack_from(self.data, self._advance(8, "a number"))[0]

    def count(self, limit: int, least_bytes: int, what: str) -> int:
        """A stated number of things that take at least so many bytes each."""
        count = self.u64()
        room = min(limit, (self.end - self.at) // least_bytes)
        if count > room:
            raise Damaged(f"{count} {what} at byte {self.at - 8}, where there is room for {room}")
        return count

    def name(self, what: str, longest: int) -> str:
        """A text of printable ASCII, 1 to `longest` bytes."""
        length = self.u64()
        if not 0 < length <= longest:
            raise Damaged(f"{what} of {length} bytes at byte {self.at - 8}")
        self.at -= 8
        name = self.texts(1, what)[0]
        if not (name.isascii() and name.isprintable()):
            raise Damaged(f"{what} that is not printable ASCII: {name[:64]!a}")
        return name

    def value(self, key: str, depth: int = 0) -> Any:
        """A value behind its type: a number, truth value, text or list of those."""
        kind = self._kind(key)
        if kind != GGUFValueType.ARRAY:
            return self._values(kind, 1, key, depth)[0]
        return self._array(key, depth)

    def texts(self, count: int, key: str) -> list[str]:
        """Texts one behind the other; a tight loop, since vocabularies have hundreds of thousands."""
        texts: list[str] = []
        data, at, end = self.data, self.at, self.end
        for _ in range(count):
            if end - at < 8 or (length := _U64.unpack_from(data, at)[0]) > end - at - 8:
                raise Damaged(f"a text of {key} at byte {at} that goes past byte {end}")
            begin, at = at + 8, at + 8 + length
            try:
                texts.append(data[begin:at].decode())
            except UnicodeDecodeError as error:
                raise Damaged(f"a text of {key} at byte {begin} that is not UTF-8") from error
        self.at = at
        return texts

    def _array(self, key: str, depth: int) -> list[Any]:
        if depth == MAX_DEPTH:
            raise Damaged(f"arrays of {key} nested more than {MAX_DEPTH} deep")
        kind = self._kind(key)
        count = self.count(MAX_ELEMENTS - self.elements, _LEAST[kind], f"elements of {key}")
        self.elements += count
        return self._values(kind, count, key, depth + 1)

    def _values(self, kind: GGUFValueType, count: int, key: str, depth: int) -> list[Any]:
        if kind == GGUFValueType.STRING:
            return self.texts(count, key)
        if kind == GGUFValueType.ARRAY:
            return [self._array(key, depth) for _ in range(count)]
        dtype = np.dtype(_NUMBERS[kind])
        begin = self._advance(count * dtype.itemsize, key)
        array = np.frombuffer(self.data[begin : self.at], dtype)
        if kind != GGUFValueType.BOOL:
            return array.tolist()
        if count and array.max() > 1:
            raise Damaged(f"the truth value {array.max()} of {key}")
        return array.astype(bool).tolist()

    def _kind(self, key: str) -> GGUFValueType:
        code = self.u32()
        if code not in _TYPES:
            raise Damaged(f"the unknown value type {code} of {key}")
        return _TYPES[code]

    def _advance(self, nbytes: int, what: str) -> int:
        """Step over bytes that must be there; the offset at which they begin."""
        begin = self.at
        if nbytes > self.end - begin:
            raise Damaged(f"{what} of {nbytes} bytes at byte {begin}, where {self.end - begin} are left")
        self.at = begin + nbytes
        return begin
