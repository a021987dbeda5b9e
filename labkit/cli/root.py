"""The `--root` option: the lab's folder, which must exist."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Root = Annotated[
    Path,
    typer.Option(
        "--root",
        exists=True,
        file_okay=False,
        help="The lab: the folder with experiments/ and results/.",
    ),
]
