"""Commands: the group whose commands end in labkit's own error when they are interrupted."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from labkit.core.errors import LabkitError


class Interrupted(LabkitError):
    """Ctrl-C, SIGTERM or SIGHUP where there was nothing to keep."""

    exit_code = 130


class Commands(TyperGroup):
    """Turns an interruption into a LabkitError; typer by itself would end without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None
