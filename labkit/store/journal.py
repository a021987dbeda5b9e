"""Journal on disk: a file per work, a line per entry, each durable before the next. Knows no entry's meaning.

A line is the CRC-32 of its JSON in eight hex digits, a space and the JSON. What a crash or a power cut leaves
of the last line is dropped: it lacks its newline, or has zeros where the file system made room for bytes that
it lost. Anything else that does not check is damage. A lock on the file says that the process that writes it
lives.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.core.errors import JournalInvalid
from labkit.core.journal import Entry
from labkit.store import durable
from labkit.store.regular import read_bytes

SUFFIX = ".jsonl"


def journals_folder(root: Path) -> Path:
    """Where a lab keeps the journals of runs that have not ended; they are no results and never committed."""
    return root / "results" / "journals"


def journal_files(root: Path) -> tuple[Path, ...]:
    """The journals of a lab, oldest first: their names begin with their start."""
    return tuple(sorted(journals_folder(root).glob(f"[!.]*{SUFFIX}")))


@dataclass(frozen=True, slots=True)
class Prefix:
    """The entries of a journal before its damage. line: the damaged one, counted from 1; 0 without any."""

    entries: tuple[Entry, ...]
    line: int


class FileJournal:
    """The journal of one work, locked by this process until it is closed. Not thread-safe."""

    def __init__(self, path: Path, handle: int) -> None:
        """Takes over the handle. Raise JournalInvalid where the journal is damaged."""
        self.path, self._handle = path, handle
        try:
            data = read_bytes(path)
            self._entries, whole = parse(data, path.name)
            if whole < len(data):
                durable.cut(handle, whole)
        except BaseException:
            os.close(handle)
            raise

    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries)

    def append(self, kind: str, data: Mapping[str, Any]) -> None:
        """Add an entry, durable once this returns. Raises OSError where it cannot be: none is added then."""
        durable.append(self._handle, line(kind, data))
        self._entries.append(Entry(kind, dict(data)))

    def remove(self) -> None:
        """Remove the journal and close it."""
        try:
            durable.remove(self.path)
        finally:
            self.close()

    def close(self) -> None:
        """Free the lock; closing twice is no error."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def create_journal(path: Path) -> FileJournal:
    """A new, empty journal. Raises OSError where it cannot be made, FileExistsError where there is one."""
    handle = durable.open_append(path, new=True)
    assert handle is not None, "a new file is waited for"
    return FileJournal(path, handle)


def open_journal(path: Path) -> FileJournal | None:
    """A journal whose writer is gone; None where it lives or the journal is gone.

    Raises JournalInvalid where it is damaged, or where no lock can tell whether its writer lives.
    """
    try:
        handle = durable.open_append(path, new=False)
    except FileNotFoundError:
        return None
    except durable.NoLocks as error:
        need = f"a file system with locks was needed to go on with results/journals/{path.name}"
        raise JournalInvalid(need, got=error.strerror, next_step="run it anew, or move the lab") from error
    return None if handle is None else FileJournal(path, handle)


def read_entries(path: Path) -> tuple[Entry, ...]:
    """The entries of a journal, whoever writes it; changes nothing. Raises JournalInvalid and OSError."""
    return tuple(parse(read_bytes(path), path.name)[0])


def read_prefix(path: Path) -> Prefix:
    """The entries of a journal as far as it is whole; changes nothing. Raises OSError."""
    entries, _, damaged = _scan(read_bytes(path))
    return Prefix(tuple(entries), damaged)


def line(kind: str, data: Mapping[str, Any]) -> bytes:
    """One entry as the bytes of its line, in ASCII: a name that no encoding knows comes back as it was.

    Raises ValueError and TypeError for what JSON cannot hold.
    """
    whole = {"kind": kind, "data": data}
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
    return b"%08x %s\n" % (zlib.crc32(text), text)


def parse(data: bytes, name: str) -> tuple[list[Entry], int]:
    """The entries in a journal's bytes and how many bytes are theirs: a torn last line is left out.

    Raise JournalInvalid, naming the journal and the line, where another line does not check.
    """
    entries, whole, damaged = _scan(data)
    if damaged:
        raise _damaged(name, damaged)
    return entries, whole


def _scan(data: bytes) -> tuple[list[Entry], int, int]:
    """The entries before the first damaged line, how many bytes are theirs, and that line's number or 0."""
    entries: list[Entry] = []
    whole = 0
    for number, (start, text) in enumerate(_lines(data), start=1):
        entry = _entry(text)
        end = start + len(text)
        if entry is None and (end < len(data) or not _is_torn(text)):
            return entries, whole, number
        if entry is not None:
            entries.append(entry)
            whole = end
    return entries, whole, 0


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield start, data[start:end]
        start = end


def _is_torn(text: bytes) -> bool:
    return not text.endswith(b"\n") or b"\0" in text


def _entry(text: bytes) -> Entry | None:
    """The entry of a line; None where the line is torn or damaged."""
    sum_, _, body = text.rstrip(b"\n").partition(b" ")
    if not text.endswith(b"\n") or b"%08x" % zlib.crc32(body) != sum_:
        return None
    try:
        found = json.loads(body)
        return Entry(str(found["kind"]), dict(found["data"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _damaged(name: str, number: int) -> JournalInvalid:
    return JournalInvalid(
        f"a whole journal was needed in results/journals/{name}",
        got=f"line {number} is damaged",
        next_step="the run cannot go on: run it anew; the file is left as it is, for you to keep or remove",
    )
