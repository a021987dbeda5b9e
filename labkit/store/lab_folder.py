"""Where a lab lies: the nearest folder, from here upwards, that holds experiments."""

from __future__ import annotations

from pathlib import Path


def find_lab(start: Path | None = None) -> Path:
    """The first of `start` (None: the current folder) and its parents with experiments/, else `start`.

    So a notebook in notebooks/ sees the records of the lab around it.
    """
    here = (start or Path()).resolve()
    return next((folder for folder in (here, *here.parents) if (folder / "experiments").is_dir()), here)
