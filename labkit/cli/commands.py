"""Commands: the group whose commands end as labkit says when they are interrupted or nobody reads on."""

from __future__ import annotations

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

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None
        except BrokenPipeError:
            leave_quietly()
