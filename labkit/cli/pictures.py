"""Pictures of results: frames from the store, figures from `plots`, files on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from labkit.frontier.dominance import Standing, judge
from labkit.frontier.growth import Moment
from labkit.frontier.growth_table import growth_frame
from labkit.frontier.links import linked
from labkit.frontier.points import points
from labkit.frontier.table import standing_frame
from labkit.store import query

FIGURES = Path("results") / "figures"


def draw_verdicts(root: Path, run_id: str, name: str) -> tuple[Path, Path]:
    """The verdicts of one run with its raw pairs and visits, as PNG and SVG."""
    from labkit.plots.files import write_figure
    from labkit.plots.pairs import verdict_figure

    frames = (read(root, run_id) for read in (query.axes, query.pairs, query.visits))
    figure = verdict_figure(*frames)
    return write_figure(figure, root / FIGURES, name)


def draw_frontier(root: Path) -> tuple[Path, ...]:
    """The frontier of every group of a lab in its folder of figures; see `draw_standings`."""
    return draw_standings(judge(points(query.frontier_points(root))), root, root / FIGURES)


def draw_standings(standings: Sequence[Standing], root: Path, folder: Path) -> tuple[Path, ...]:
    """Judged points flat (frontier) and in three dimensions (frontier-3d), each as PNG and SVG.

    In the SVG a point opens its record, which lies below `root`, seen from the folder.
    """
    from labkit.plots.files import write_figure
    from labkit.plots.frontier import frontier_figure
    from labkit.plots.frontier_3d import frontier_3d_figure

    frame = linked(standing_frame(standings), root, folder)
    return (
        *write_figure(frontier_figure(frame), folder, "frontier"),
        *write_figure(frontier_3d_figure(frame), folder, "frontier-3d"),
    )


def draw_growth(found: Sequence[Moment], root: Path, folder: Path) -> tuple[Path, ...]:
    """The hypervolume over time, as frontier-over-time.png and .svg, whose marks open their records."""
    from labkit.plots.files import write_figure
    from labkit.plots.growth import growth_figure

    figure = growth_figure(linked(growth_frame(found), root, folder))
    return write_figure(figure, folder, "frontier-over-time")
