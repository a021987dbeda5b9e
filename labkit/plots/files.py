"""Files: a figure as PNG and SVG on disk, whole or not at all and the same bytes for the same figure."""

from __future__ import annotations

import fcntl
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.plots.style import house_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_figure(figure: Figure, folder: Path | str, name: str) -> tuple[Path, Path]:
    """Write `name.png` and `name.svg` (text as text, no date) into folder and return both paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with house_style():
        png = _save(figure, folder / f"{name}.png", {"Software": None})
        svg = _save(figure, folder / f"{name}.svg", {"Date": None, "Creator": None})
    return png, svg


def _save(figure: Figure, target: Path, metadata: dict[str, Any]) -> Path:
    """Saved beside its name and renamed onto it, so that an interruption leaves the picture before."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # who sweeps up after killed writers sees that this one lives
            figure.savefig(file, format=target.suffix[1:], metadata=metadata)
            file.flush()
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target
