"""Console: where commands print. rich's, except that it cuts no cell and takes a reader's leave quietly.

What rich itself does already: no escape codes in a pipe or file, NO_COLOR, FORCE_COLOR, TERM=dumb, COLUMNS.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from rich import console
from rich.measure import Measurement
from rich.table import Table

# What a shell says of a program that SIGPIPE ended.
READER_GONE = 141


class Console(console.Console):
    """A console on which a table keeps every character, however narrow it is."""

    def print(self, *objects: Any, **options: Any) -> None:
        for table in (shown for shown in objects if isinstance(shown, Table)):
            self._keep_whole(table)
        super().print(*objects, **options)

    def on_broken_pipe(self) -> NoReturn:
        """End quietly, with READER_GONE: the reader of a pipe went early, as `head -1` does."""
        self.quiet = True
        leave_quietly()

    def _keep_whole(self, table: Table) -> None:
        """Fold what rich would cut; lines that may not wrap do where the table is too wide for that."""
        for column in table.columns:
            column.overflow = "fold"
        if Measurement.get(self, self.options.update(max_width=1 << 12), table).minimum > self.width:
            for column in table.columns:
                column.no_wrap = False


def leave_quietly() -> NoReturn:
    """End with READER_GONE. What is still buffered would fail once more when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(READER_GONE)
