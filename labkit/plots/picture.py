"""Picture: a figure as a notebook shows it, as SVG within the page so that its links can be followed."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.plots.files import write_figure
from labkit.plots.style import house_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """A figure that the last line of a cell shows. figure: matplotlib's own."""

    figure: Figure

    def save(self, folder: Path | str, name: str) -> tuple[Path, Path]:
        """Write name.png and name.svg into folder; links stay relative to where they were made."""
        return write_figure(self.figure, folder, name)

    def svg(self) -> str:
        """The element `svg`, without what stands before it in a file."""
        text = io.StringIO()
        with house_style():
            self.figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        return text.getvalue()[text.getvalue().index("<svg") :]

    def __repr__(self) -> str:
        width, height = self.figure.get_size_inches()
        return f"<Picture {width:g} x {height:g} inches>"

    def _repr_html_(self) -> str:
        return self.svg()
