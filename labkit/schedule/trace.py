"""Trace: the requests of a file, line by line. Knows formats; not what is made of the requests.

A `.jsonl` file has one object a line, a `.csv` file a head with the names of its columns. Each request has

| field | what it is |
|---|---|
| `timestamp` | seconds, from any moment on; the first request comes at 0, and none before the one above it |
| `prompt_tokens` | a whole number of at least 1 |
| `new_tokens` | a whole number of at least 1 |

Other fields are left alone. Empty lines are passed over.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labkit.core.errors import LabkitError
from labkit.schedule.arrivals import Arrival

FIELDS = ("timestamp", "prompt_tokens", "new_tokens")
_DIGITS = 16
# A line number and the line's fields.
_Line = tuple[int, Any]


class TraceInvalid(LabkitError):
    """A trace that cannot be read; the message says where it is wrong."""


@dataclass(frozen=True, slots=True)
class Trace:
    """arrivals: in the order of the file. sha256: of the file's bytes, 16 digits."""

    arrivals: tuple[Arrival, ...]
    sha256: str


def read_trace(path: Path) -> Trace:
    """The requests of a file. Raises TraceInvalid with the number of the first line that is wrong."""
    lines_of = _READERS.get(path.suffix)
    if lines_of is None:
        raise TraceInvalid(
            "a trace in a file of a known kind was needed", got=path.name, options=tuple(_READERS)
        )
    if path.exists() and not path.is_file():
        raise TraceInvalid("a trace in a file was needed", got=f"{path}: a folder or device")
    try:
        data = path.read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise TraceInvalid("a trace that can be read was needed", got=f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraceInvalid("a trace in UTF-8 was needed", got=f"{path.name}: {error.reason}") from error
    arrivals = tuple(_arrivals(path.name, lines_of(path.name, text)))
    if not arrivals:
        raise TraceInvalid("a trace with at least one request was needed", got=f"none in {path.name}")
    return Trace(arrivals, hashlib.sha256(data).hexdigest()[:_DIGITS])


def _arrivals(name: str, lines: Iterator[_Line]) -> Iterator[Arrival]:
    first = before = math.nan
    for index, (number, line) in enumerate(lines):
        arrival = _arrival(name, number, index, line)
        first = arrival.at_s if index == 0 else first
        if arrival.at_s < before:
            raise _wrong(name, number, f"a timestamp of {before:g} or later", arrival.at_s)
        before = arrival.at_s
        yield replace(arrival, at_s=arrival.at_s - first)


def _arrival(name: str, number: int, index: int, line: Any) -> Arrival:
    if not isinstance(line, Mapping):
        raise _wrong(name, number, f"an object with {', '.join(FIELDS)}", line)
    missing = [field for field in FIELDS if line.get(field) in (None, "")]
    if missing:
        raise _wrong(name, number, f"the field {missing[0]!r}", ", ".join(map(str, line)) or "none")
    at_s = _number(line["timestamp"])
    if at_s is None or at_s < 0:
        raise _wrong(name, number, "a timestamp of 0 or more seconds", line["timestamp"])
    prompt, new = (_count(name, number, line, field) for field in FIELDS[1:])
    return Arrival(f"r{index}", at_s, prompt, new)


def _count(name: str, number: int, line: Mapping[str, Any], field: str) -> int:
    value = _number(line[field])
    if value is None or value < 1 or value != math.floor(value):
        raise _wrong(name, number, f"a whole number of at least 1 as {field}", line[field])
    return int(value)


def _number(value: Any) -> float | None:
    """A number, or the text of one; None for anything else. A NaN or an infinity is no count."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _objects(name: str, text: str) -> Iterator[_Line]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError as error:
                raise _wrong(name, number, "an object in JSON", f"{line[:60]!r} ({error})") from error


def _rows(name: str, text: str) -> Iterator[_Line]:
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    missing = [field for field in FIELDS if field not in (reader.fieldnames or ())]
    if missing:
        got = ", ".join(reader.fieldnames or ()) or "none"
        raise _wrong(name, 1, f"a head with the column {missing[0]!r}", got)
    try:
        yield from ((reader.line_num, row) for row in reader)
    except csv.Error as error:
        raise _wrong(name, reader.line_num, "a line of comma-separated values", error) from error


def _wrong(name: str, number: int, need: str, got: object) -> TraceInvalid:
    return TraceInvalid(f"{name}, line {number}: {need} is needed", got=got)


_READERS: Mapping[str, Callable[[str, str], Iterator[_Line]]] = {".jsonl": _objects, ".csv": _rows}
