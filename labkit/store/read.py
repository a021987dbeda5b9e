"""Read: records from disk, the damaged ones beside them with the reason. Deletes and repairs nothing."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from labkit.core.errors import LabkitError, RecordInvalid
from labkit.core.records import Record
from labkit.store.files import LINK, leads_out, links_out, record_files, shown
from labkit.store.regular import read_bytes

__all__ = ["Damaged", "Loaded", "Stored", "one_line", "read_record", "read_records", "record_files"]


@dataclass(frozen=True, slots=True)
class Damaged:
    """A file among the records that is none. path: relative to the lab root, in POSIX form."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A record and where it lies, relative to the lab root in POSIX form."""

    path: str
    record: Record


@dataclass(frozen=True, slots=True)
class Loaded:
    """Every record of a lab, and every file that should have been one."""

    stored: tuple[Stored, ...]
    damaged: tuple[Damaged, ...]

    @property
    def records(self) -> tuple[Record, ...]:
        """The records alone, oldest first."""
        return tuple(s.record for s in self.stored)


def read_record(path: Path | str) -> Record:
    """One record. Raise RecordInvalid where the file cannot be read or is not where it belongs."""
    # Names are taken from the text: over many records the objects of pathlib cost a fifth of the time.
    folder, name = os.path.split(os.fspath(path))
    try:
        record = Record.from_json(_data(read_bytes(path)))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordInvalid(f"a readable record was needed in {name}", got=_reason(error)) from error
    _check_place(record, os.path.split(folder)[1] or Path(path).absolute().parent.name, name)
    return record


def read_records(root: Path | str) -> Loaded:
    """All records below the lab root, oldest first; what cannot be read is listed and left alone."""
    stored: list[Stored] = []
    damaged = [Damaged(shown(path.relative_to(root).as_posix()), LINK) for path in links_out(root)]
    for path in record_files(root):
        relative = shown(path.relative_to(root).as_posix())
        try:
            check_inside(path, root)
            stored.append(Stored(relative, read_record(path)))
        except RecordInvalid as error:
            damaged.append(Damaged(relative, one_line(error)))
    stored.sort(key=lambda s: (s.record.started_at, s.record.run_id))
    return Loaded(tuple(stored), tuple(damaged))


def check_inside(path: Path | str, root: Path | str) -> None:
    """Raise RecordInvalid where a link leads out of the lab: what lies there is not the lab's."""
    if os.path.islink(path) and leads_out(path, root):  # noqa: PTH114 - asked a hundred thousand times
        raise RecordInvalid(LINK)


def one_line(error: LabkitError) -> str:
    """An error's need and what it got, on one line."""
    return error.need if error.got is None else f"{error.need}; got {error.got}"


def _check_place(record: Record, folder: str, name: str) -> None:
    """A copy under another name would count twice, so a record's place is part of its being whole."""
    if not isinstance(record.machine, dict) or not isinstance(record.started_at, str):
        raise RecordInvalid("a record with a machine and a start was needed", got=name)
    found, needed = f"{folder}/{name}", f"{record.machine.get('slug')}/{record.run_id}.json"
    if found != needed:
        raise RecordInvalid(f"this record belongs at {needed}", got=found)


def _data(raw: bytes) -> Any:
    """The JSON of a file. Raise ValueError for NaN, infinities and text that is no Unicode."""
    text = raw.decode("utf-8")
    if "\\u" in text:
        json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8")  # half of a surrogate pair
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"the number {name}")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    if isinstance(error, json.JSONDecodeError):
        return f"broken JSON at line {error.lineno}: {error.msg}"
    return f"{type(error).__name__}: {error}"
