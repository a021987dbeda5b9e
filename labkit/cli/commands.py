"""Commands: the group whose commands end as labkit says when they are interrupted or nobody reads on.

Their help is refilled: a docstring breaks its lines where the source does, a terminal has a width of its own.
"""

from __future__ import annotations

import inspect
from typing import Any

from typer.core import TyperGroup

from labkit.cli.console import leave_quietly
from labkit.core.errors import LabkitError


class Interrupted(LabkitError):
    """Ctrl-C, SIGTERM or SIGHUP where there was nothing to keep."""

    exit_code = 130


class Commands(TyperGroup):
    """Turns an interruption into a LabkitError; typer by itself would end without a word.

    Where the reader of a pipe went early the command ends quietly.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        _refill(self)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None
        except BrokenPipeError:
            leave_quietly()


def _refill(command: Any) -> None:
    """Make each paragraph of the help of a command, and of those below it, one line for rich to fold."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    for member in getattr(command, "commands", {}).values():
        _refill(member)
