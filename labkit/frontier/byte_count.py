"""Byte count: a number of bytes as a person writes it, such as `100MB` or `1.5 GiB`."""

from __future__ import annotations

import re

from labkit.core.errors import LabkitError

_UNITS = {
    "": 1.0,
    "b": 1.0,
    "bytes": 1.0,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "tb": 1e12,
    "kib": 1024.0,
    "mib": 1024.0**2,
    "gib": 1024.0**3,
    "tib": 1024.0**4,
}
_WRITTEN = re.compile(r"\s*(\d+(?:_\d{3})*(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_LARGEST = 1e18


class ByteCountInvalid(LabkitError):
    """A text or number that is no positive number of bytes."""

    exit_code = 2


def byte_count(written: str | float) -> float:
    """The bytes of `100MB` (10**6 a megabyte), `1.5 GiB`, `4096` or a number. Raise ByteCountInvalid."""
    text = written if isinstance(written, str) else f"{written:f}"
    found = _WRITTEN.fullmatch(text)
    unit = _UNITS.get(found[2].lower()) if found else None
    count = float(found[1]) * unit if found and unit else 0.0
    if 1 <= count <= _LARGEST:
        return count
    raise ByteCountInvalid(
        "a number of bytes was needed, such as 100MB",
        got=repr(written),
        options=("kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"),
    )
