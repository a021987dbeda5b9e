"""Header: the start of a safetensors file, read as strictly as the format is stated.

Knows the format only (https://github.com/huggingface/safetensors): 8 bytes of length, a JSON object, then
the data without holes. Everything that it returns lies within the file.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from labkit.core.json_object import only_once

BITS: Mapping[str, int] = {
    **dict.fromkeys(("F64", "I64", "U64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    "F4": 4,
}
# The format allows 100 MB; 32 MiB hold 250,000 tensors, and keep what the parsed form takes below 500 MB.
LONGEST = 1 << 25
_METADATA = "__metadata__"


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a header. begin, end: byte offsets within the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(file: Path) -> dict[str, Entry]:
    """The tensors of a file by name. Raises ValueError with the reason, OSError where it cannot be read."""
    if not file.is_file():
        raise ValueError("not a file" if file.exists() else "no such file")
    size = file.stat().st_size
    with file.open("rb") as stream:
        start = stream.read(8)
        if len(start) < 8:
            raise ValueError(f"{len(start)} bytes, too few for a header")
        (length,) = struct.unpack("<Q", start)
        if length > min(size - 8, LONGEST):
            raise ValueError(f"{size} bytes, and a header of {length}")
        text = stream.read(length)
    entries = {n: _entry(n, e, 8 + length) for n, e in _parsed(text).items() if n != _METADATA}
    _check_places(entries, 8 + length, size)
    return entries


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text.decode(), object_pairs_hook=only_once)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a header that is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise ValueError("a header that is no JSON object")
    return header


def _entry(name: str, stated: Any, base: int) -> Entry:
    if not isinstance(stated, dict) or str(stated.get("dtype")) not in BITS:
        raise ValueError(f"{name}: a dtype that is not known")
    shape, offsets = stated.get("shape"), stated.get("data_offsets")
    if not _counts(shape) or not _counts(offsets) or len(offsets) != 2:
        raise ValueError(f"{name}: a shape or offsets that are no lists of counts")
    begin, end = offsets
    if (end - begin) * 8 != math.prod(shape) * BITS[stated["dtype"]]:
        raise ValueError(f"{name}: {end - begin} bytes do not fit {stated['dtype']} {shape}")
    return Entry(stated["dtype"], tuple(shape), base + begin, base + end)


def _counts(value: Any) -> TypeGuard[list[int]]:
    """Whether a value is a list of whole numbers of at least 0."""
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)


def _check_places(entries: Mapping[str, Entry], base: int, size: int) -> None:
    """The tensors follow one another, from the header to the end of the file."""
    at = base
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.end > size:
            raise ValueError(f"{size} bytes, fewer than its header lists")
        if entry.begin != at:
            problem = "bytes of another tensor" if entry.begin < at else "a gap before it"
            raise ValueError(f"{name}: {problem}")
        at = entry.end
    if at != size:
        raise ValueError(f"{size - at} bytes at the end that belong to no tensor")
