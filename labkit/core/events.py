"""Progress as events: producers report, whoever listens (CLI bar, notebook, nobody) decides what to show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """task: a stable name of the work; done of total units (total None: unknown); note: what is going on."""

    task: str
    done: float
    total: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """A line or block of text for the person who watches."""

    text: str


Event = Progress | Note
Sink = Callable[[Event], None]


def silent(_: Event) -> None:
    """The sink that shows nothing."""
