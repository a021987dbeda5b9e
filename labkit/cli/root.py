"""The `--root` option: the lab's folder, which must exist; where none is given, the lab around."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import CallbackParam, Context

from labkit.store.lab_folder import find_lab


def nearest_lab() -> Path:
    """The nearest folder upwards with experiments/, absolute; `.` where that is this one or there is none."""
    found = find_lab()
    return Path() if found == Path().resolve() else found


def _or_nearest(context: Context, parameter: CallbackParam, value: Path) -> Path:
    """The lab as stated, even where that is `.`; the nearest one where nothing was."""
    source = context.get_parameter_source(parameter.name or "")
    return nearest_lab() if source is not None and source.name.startswith("DEFAULT") else value


Root = Annotated[
    Path,
    typer.Option(
        "--root",
        exists=True,
        file_okay=False,
        callback=_or_nearest,
        show_default=False,
        help="The lab: by default the nearest folder upwards with experiments/, else this one.",
    ),
]
