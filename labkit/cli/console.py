"""Console: where commands print. rich's, except that it cuts no cell, shows control characters instead of
sending them to the terminal, and takes a reader's leave quietly.

What rich itself does already: no escape codes in a pipe or file, NO_COLOR, FORCE_COLOR, TERM=dumb, COLUMNS.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, NoReturn

from rich import console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

# What a shell says of a program that SIGPIPE ended.
READER_GONE = 141
# What a terminal obeys rather than shows: control codes but for lines and tabs, and turns of the direction.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class Console(console.Console):
    """A console on which a table keeps every character, however narrow it is, and shows each of them."""

    def print(self, *objects: Any, **options: Any) -> None:
        for table in (shown for shown in objects if isinstance(shown, Table)):
            self._keep_whole(table)
        super().print(*objects, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Text to print, in cells too, with what a terminal would obey as its escape, such as `\\x1b`."""
        return super().render_str(visible(text), **options)

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


def visible(text: str) -> str:
    """Text with control characters as their escapes."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def leave_quietly() -> NoReturn:
    """End with READER_GONE. What is still buffered would fail once more when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(READER_GONE)
