"""Picture: a figure as a notebook shows it, as SVG within the page so that its links can be followed."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from labkit.plots.files import write_figure
from labkit.plots.style import house_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """A figure that the last line of a cell shows. figure: matplotlib's own.

    seen_from: the folder that its links are relative to, that of the page which shows it.
    """

    figure: Figure
    seen_from: Path = field(default_factory=Path.cwd)

    def save(self, folder: Path | str, name: str) -> tuple[Path, Path]:
        """Write name.png and name.svg into folder, with links that lead from there to the same files."""
        with self._links_from(Path(folder).resolve()):
            return write_figure(self.figure, folder, name)

    @contextmanager
    def _links_from(self, folder: Path) -> Iterator[None]:
        linked: list[tuple[Any, str]] = [
            (artist, url) for artist in self.figure.findobj() if (url := artist.get_url())
        ]
        try:
            for artist, url in linked:
                artist.set_url(_moved(url, self.seen_from.resolve(), folder))
            yield
        finally:
            for artist, url in linked:
                artist.set_url(url)

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


def _moved(url: str, start: Path, folder: Path) -> str:
    """A relative link from `start` as one from `folder`; any other as it is."""
    if urlsplit(url).scheme or url.startswith(("/", "#")):
        return url
    return quote(Path(os.path.relpath(start / unquote(url), folder)).as_posix())
