"""Progress where nobody asked for a sink: bars in a notebook, nothing elsewhere."""

from __future__ import annotations

import sys
from typing import Any

from labkit.core.events import Event, Progress, Sink, silent


def default_sink() -> Sink:
    """A sink with one bar a task inside a Jupyter kernel, else the silent one."""
    return NotebookBars() if "ipykernel" in sys.modules else silent


class NotebookBars:
    """Bars of tqdm's notebook kind; a note is left to the record."""

    def __init__(self) -> None:
        self._bars: dict[str, Any] = {}

    def __call__(self, event: Event) -> None:
        if not isinstance(event, Progress):
            return
        from tqdm.auto import tqdm

        bar = self._bars.get(event.task)
        if bar is None:
            bar = self._bars[event.task] = tqdm(total=event.total, desc=event.task, leave=False)
        bar.n = event.done
        bar.set_postfix_str(event.note)
        if event.total is not None and event.done >= event.total:
            bar.close()
