"""Pictures of results: frames from the store, figures from `plots`, files on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from labkit.frontier.dominance import Standing, judge
from labkit.frontier.points import points
from labkit.frontier.table import standing_frame
from labkit.store import query

FIGURES = Path("results") / "figures"


def draw_verdicts(root: Path, run_id: str, name: str) -> tuple[Path, Path]:
    """The verdicts of one run with its raw samples, as PNG and SVG."""
    from labkit.plots.files import write_figure
    from labkit.plots.pairs import verdict_figure

    frames = (query.axes(root, run_id), query.pairs(root, run_id), query.visits(root, run_id))
    figure = verdict_figure(*frames)
    return write_figure(figure, root / FIGURES, name)


def draw_frontier(root: Path) -> tuple[Path, Path]:
    """The frontier of every group of a lab, as PNG and SVG in its folder of figures."""
    return draw_standings(judge(points(query.frontier_points(root))), root / FIGURES)


def draw_standings(standings: Sequence[Standing], folder: Path) -> tuple[Path, Path]:
    """Judged points, a panel per group, as frontier.png and frontier.svg."""
    from labkit.plots.files import write_figure
    from labkit.plots.frontier import frontier_figure

    return write_figure(frontier_figure(standing_frame(standings)), folder, "frontier")
