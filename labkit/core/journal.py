"""Journal: append-only progress of a long work, so that a killed one can go on. A protocol and its entries.

Knows neither files nor what the entries mean: `store` keeps them on disk, `lab` injects a journal into
whoever works, and who works says what it appends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that was done. kind: what it is, such as `visit`; data: plain JSON values."""

    kind: str
    data: Mapping[str, Any]


class Journal(Protocol):
    """Entries in the order in which they were appended."""

    def entries(self) -> tuple[Entry, ...]:
        """Everything appended so far, by earlier processes too."""
        ...

    def append(self, kind: str, data: Mapping[str, Any]) -> None:
        """Add an entry that is durable once this returns. Raises OSError where it cannot be."""
        ...


class MemoryJournal:
    """A journal that ends with its process: for work that nobody asked to keep."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries)

    def append(self, kind: str, data: Mapping[str, Any]) -> None:
        self._entries.append(Entry(kind, dict(data)))
