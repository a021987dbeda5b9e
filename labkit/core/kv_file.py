"""KVFile: a file of KV settings per layer as data: its content once read, and its place in a scheme's name.

A name holds the path, and after an @ the hash of the content that it means: `mixed:kv.json@1a2b3c4d/s16`.
Reads and judges nothing.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

_DIGITS = 8
_NAMED = re.compile(r"(?P<path>.+\.json)(?:@(?P<pin>[0-9a-f]{8}))?(?P<options>(?:/[^/]*)*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class KVFile:
    """text: its content. problem: why it could not be read, in words; text is empty then."""

    text: str = ""
    problem: str = ""

    @property
    def pin(self) -> str:
        """What a name holds after an @ to mean this content and no other: 8 digits of its SHA-256."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:_DIGITS]


class FileInName(NamedTuple):
    """path: of the file. pin: the hash that is stated, None without one. options: the rest, as it stands."""

    path: str
    pin: str | None
    options: str


def split_file(argument: str) -> FileInName | None:
    """The parts of what follows the colon in a name; None where no .json file is named."""
    found = _NAMED.fullmatch(argument)
    return FileInName(found["path"], found["pin"], found["options"]) if found else None


def file_of(name: object) -> str | None:
    """The path in a name of the form `<family>:<file>.json...`; None in any other."""
    found = split_file(name.partition(":")[2]) if isinstance(name, str) else None
    return found.path if found else None


def pinned(name: str, pin: str) -> str:
    """The name with the hash of its file's content; one that has a hash, or no file, as it is."""
    family, _, argument = name.partition(":")
    found = split_file(argument)
    if found is None or found.pin:
        return name
    return f"{family}:{found.path}@{pin}{found.options}"


def portable(name: str) -> str:
    """The name with its file by the last part of its path, wherever on a machine it lies."""
    path = file_of(name)
    return name if path is None else name.replace(path, PurePath(path).name, 1)
