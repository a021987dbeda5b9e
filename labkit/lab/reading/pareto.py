"""Pareto: the frontier of a lab as a value to look at: points, trade-offs, prices, growth and pictures."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.frontier.byte_count import byte_count
from labkit.frontier.dominance import Standing, judge
from labkit.frontier.growth import Moment, moments
from labkit.frontier.growth_table import growth_frame
from labkit.frontier.links import linked
from labkit.frontier.marginal import Within, upgrades, within
from labkit.frontier.marginal_table import marginal_frame
from labkit.frontier.points import no_points, points
from labkit.frontier.table import standing_frame
from labkit.frontier.tradeoff import trade_offs
from labkit.frontier.words import advantage_text
from labkit.plots.picture import Picture
from labkit.store import query
from labkit.store.lab_folder import find_lab

if TYPE_CHECKING:
    import pandas

_SHOWN = ("family", "workload", "label", "status", "speed", "quality", "size", "beside_reference")


@dataclass(frozen=True, slots=True, repr=False)
class Pareto:
    """The judged points of a lab, and how their frontier grew. The last line of a cell shows the table."""

    root: Path
    standings: tuple[Standing, ...]
    moments: tuple[Moment, ...]

    def table(self) -> pandas.DataFrame:
        """One row per point, as `labkit.frontier.table.standing_frame`; link leads to its record."""
        return linked(standing_frame(self.standings), self.root, Path())

    def trade_offs(self) -> pandas.DataFrame:
        """One row per trade-off of the frontier: what `point` gains over `other`, and what it gives up."""
        import pandas

        rows = [
            {
                **{k: getattr(t.point.group, k) for k in ("family", "workload")},
                "point": t.point.label,
                "other": t.other.label,
                "gains": [f"{a.axis.name} {advantage_text(a)}" for a in t.gained()],
                "gives_up": [f"{a.axis.name} {advantage_text(a)}" for a in t.given_up()],
            }
            for t in trade_offs(self.standings)
        ]
        columns = ("family", "workload", "point", "other", "gains", "gives_up")
        return pandas.DataFrame(rows, columns=list(columns))

    def buys(self, more: str | float = "100MB") -> pandas.DataFrame:
        """What more bytes buy: a row per step along the frontier, priced for each `more` bytes of it."""
        return marginal_frame(upgrades(self.standings, byte_count(more)))

    def within(self, budget: str | float, more: str | float = "100MB") -> tuple[Within, ...]:
        """For each group the best points that fit `budget` bytes, and what the next `more` would buy."""
        return within(self.standings, byte_count(budget), byte_count(more))

    def over_time(self) -> pandas.DataFrame:
        """The hypervolume of each group's frontier after every record; the reference alone has 1."""
        return linked(growth_frame(self.moments), self.root, Path())

    def figure(self) -> Picture:
        """Speed and size of every point, a panel per group. A click on a point opens its record."""
        from labkit.plots.frontier import frontier_figure

        return Picture(frontier_figure(self.table()))

    def figure_3d(self) -> Picture:
        """Speed, size and KL of every point, a cube per group. A click on a point opens its record."""
        from labkit.plots.frontier_3d import frontier_3d_figure

        return Picture(frontier_3d_figure(self.table()))

    def figure_over_time(self) -> Picture:
        """The hypervolume over time, a panel per group. A click on a mark opens its record."""
        from labkit.plots.growth import growth_figure

        return Picture(growth_figure(self.over_time()))

    def __repr__(self) -> str:
        statuses = [s.status for s in self.standings]
        groups = len({s.point.group for s in self.standings})
        on = statuses.count("frontier")
        return f"<Pareto: {len(statuses)} points, {on} on the frontier; groups: {groups}>"

    def _repr_html_(self) -> str:
        frame = self.table()
        shown = frame[list(_SHOWN)].map(lambda v: html.escape(v) if isinstance(v, str) else v)
        shown["record"] = [
            f'<a href="{html.escape(url)}">{html.escape(run)}</a>'
            for url, run in zip(frame["link"], frame["run_id"], strict=True)
        ]
        return shown.to_html(index=False, escape=False, float_format="{:.4g}".format)


def pareto(root: Path | str | None = None, *, across_versions: bool = False) -> Pareto:
    """The frontier of a lab in speed, quality and size, within groups that may be compared.

    root: the lab; None takes the nearest folder upwards with experiments/. across_versions: put points of
    different code and packages side by side, which are kept apart otherwise; what is shown over time spans
    all in any case. Raise NoRecords where no
    complete record of an experiment is.
    """
    place = Path(root) if root is not None else find_lab()
    judged = judge(points(query.frontier_points(place), across_versions=across_versions))
    if not judged:
        raise no_points(f"none below {place}")
    grown = moments(query.frontier_records(place))
    return Pareto(place, judged, grown)
