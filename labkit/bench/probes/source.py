"""Source: where a probe's text comes from, a command with a time limit or files. The only effects here.

What cannot be read, does not exist or does not answer in time is None; nothing is raised.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

COMMAND_LIMIT_S = 1.0
_LONGEST = 1 << 20


class Source(Protocol):
    """Something that gives a text. Sources are hashable: two probes of one source read it once."""

    def read(self) -> str | None: ...

    @property
    def title(self) -> str:
        """What is read, as a person would look at it."""
        ...


@dataclass(frozen=True, slots=True)
class Command:
    """The stdout of a command that ends well within `limit_s`, in the locale C."""

    words: tuple[str, ...]
    limit_s: float = COMMAND_LIMIT_S

    @property
    def title(self) -> str:
        return " ".join(self.words)

    def read(self) -> str | None:
        try:
            done = subprocess.run(
                self.words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self.limit_s,
                env={**os.environ, "LC_ALL": "C"},
                check=False,
            )
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
        return done.stdout[:_LONGEST].decode(errors="replace") if done.returncode == 0 else None


@dataclass(frozen=True, slots=True)
class File:
    """The text of one file."""

    path: str

    @property
    def title(self) -> str:
        return self.path

    def read(self) -> str | None:
        return _text(Path(self.path))


@dataclass(frozen=True, slots=True)
class Files:
    """Files below a folder, by patterns, as lines `path:text` with one for every line of a file.

    The path is relative to the folder: what `grep -r '' .` prints. Sorted; None where there is none.
    """

    folder: str
    patterns: tuple[str, ...]

    @property
    def title(self) -> str:
        return " ".join(f"{self.folder}/{pattern}" for pattern in self.patterns)

    def read(self) -> str | None:
        return joined(self._found())

    def _found(self) -> Iterator[tuple[str, Path]]:
        folder = Path(self.folder)
        try:
            for pattern in self.patterns:
                for path in sorted(folder.glob(pattern)):
                    yield path.relative_to(folder).as_posix(), path
        except OSError:
            return


def joined(files: Iterator[tuple[str, Path]]) -> str | None:
    """The readable ones of some named files as lines `name:text`; None where there is none."""
    texts = ((name, _text(path)) for name, path in files)
    lines = [f"{name}:{line}" for name, text in texts if text is not None for line in text.splitlines()]
    return "\n".join(lines) + "\n" if lines else None


def by_path(text: str) -> Iterator[tuple[str, str]]:
    """The lines `path:text` of joined files, as pairs."""
    for line in text.splitlines():
        path, colon, rest = line.partition(":")
        if colon:
            yield path, rest.strip()


def _text(path: Path) -> str | None:
    try:
        with path.open("rb") as stream:
            return stream.read(_LONGEST).decode(errors="replace")
    except OSError:
        return None
