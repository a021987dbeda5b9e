"""Progress for a person at a terminal: a bar per task; plain lines where there is no terminal."""

from __future__ import annotations

from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from labkit.cli.console import Console
from labkit.core import events


class ProgressSink:
    """A sink for `core.events`; a context manager that restores the terminal however the work ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        # FORCE_COLOR makes rich take a pipe for a terminal: colours may go there, a bar may not.
        self._live = console.is_terminal and console.file.isatty() and not console.is_dumb_terminal
        self._bars = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}", style="dim"),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> ProgressSink:
        if self._live:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars.live.is_started:  # a stop without a start prints an empty line
            self._bars.stop()

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.Note):
            self._console.print(event.text, highlight=False, markup=False, soft_wrap=True)
        elif self._live:
            self._bar(event)
        elif event.task not in self._tasks:
            self._tasks[event.task] = TaskID(0)
            self._console.print(f"{event.task} ...", highlight=False, markup=False)

    def _bar(self, event: events.Progress) -> None:
        task = self._tasks.get(event.task)
        if task is None:
            task = self._bars.add_task(event.task, total=event.total, note="")
            self._tasks[event.task] = task
        done = event.total is not None and event.done >= event.total
        self._bars.update(task, completed=event.done, total=event.total, note="" if done else event.note)
