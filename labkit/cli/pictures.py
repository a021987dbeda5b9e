"""Pictures of results: frames from the store, figures from `plots`, files on disk."""

from __future__ import annotations

from pathlib import Path

from labkit.frontier.dominance import judge
from labkit.frontier.points import points
from labkit.frontier.table import standing_frame
from labkit.store import query

FIGURES = Path("results") / "figures"


def draw_verdicts(root: Path, run_id: str, name: str) -> tuple[Path, Path]:
    """The verdicts of one run with its raw pairs, as PNG and SVG."""
    from labkit.plots.files import write_figure
    from labkit.plots.pairs import verdict_figure

    axes, pairs = (frame.query(f"run_id == {run_id!r}") for frame in (query.axes(root), query.pairs(root)))
    return write_figure(verdict_figure(axes, pairs), root / FIGURES, name)


def draw_frontier(root: Path, folder: Path | None = None) -> tuple[Path, Path]:
    """The frontier of every group, as PNG and SVG."""
    from labkit.plots.files import write_figure
    from labkit.plots.frontier import frontier_figure

    frame = standing_frame(judge(points(query.frontier_points(root))))
    return write_figure(frontier_figure(frame), folder or root / FIGURES, "frontier")
