"""The picture of a frontier's hypervolume over time: a panel per group. A frame in, a figure out."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from labkit.plots.frontier import grouped
from labkit.plots.marks import Row, link
from labkit.plots.style import BAND, BLUE, FADED, GREY, INK, SMALL_PT, WIDTH_IN, house_style

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_IN = 2.6
# The top of the scale is the first of these above all volumes, so that it stays as they grow.
TOPS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
LEGEND = (
    "Each mark is a record; filled where it moved the frontier. Shaded: the volume of the bad and of the\n"
    "good ends of the intervals. 1 is the reference alone; the corner is a quarter of its speed, four times\n"
    "its bytes, and a KL of 1 nat. Dashed: from there on other code or packages measured."
)


def growth_figure(frame: pandas.DataFrame) -> Figure:
    """One panel per group of `labkit.frontier.growth_table.growth_frame`: the volume after each record.

    A column `link`, where the frame has one, is where a click on a mark leads in the SVG. Raise NoRecords for
    an empty frame.
    """
    with house_style():
        return _figure(grouped(frame))


def _figure(groups: list[list[Row]]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, (PANEL_IN + 1.0) * len(groups) + 0.5), layout="constrained")
    panels = figure.subplots(len(groups), 1, squeeze=False)[:, 0]
    for axes, rows in zip(panels, groups, strict=True):
        _panel(axes, rows)
    figure.supxlabel(LEGEND, x=0.01, ha="left", fontsize=SMALL_PT, color=GREY)
    return figure


def _panel(axes: Axes, rows: list[Row]) -> None:
    """A step at each record; records are evenly spaced, since days without one say nothing."""
    at = list(range(1, len(rows) + 1))
    ends = [*at, len(rows) + 0.5]
    middle, bad, good = ([*(row[end] for row in rows), rows[-1][end]] for end in ("volume", "low", "high"))
    axes.step(ends, middle, where="post", color=BLUE, linewidth=1.8, zorder=3)
    axes.fill_between(ends, bad, good, step="post", color=BAND, linewidth=0, zorder=1)
    axes.axhline(1, color=FADED, linewidth=1, zorder=2)
    for x, row in zip(at, rows, strict=True):
        face = BLUE if len(row["grew"]) else "white"
        mark: dict[str, Any] = {"color": BLUE, "markerfacecolor": face, "markersize": 8, "zorder": 4}
        for artist in axes.plot([x], [row["volume"]], "o" if len(row["grew"]) else "s", **mark):
            artist.set_url(link(row))
        if len(row["changed"]):
            _version_mark(axes, x - 0.5, row)
    _scales(axes, rows)
    _words(axes, rows[0])


def _version_mark(axes: Axes, at: float, row: Row) -> None:
    axes.axvline(at, color=GREY, linewidth=1.2, linestyle=(0, (4, 3)), zorder=2)
    axes.annotate(
        " and ".join(row["changed"]),
        (at, 1),
        xycoords=("data", "axes fraction"),
        xytext=(3, -3),
        textcoords="offset points",
        va="top",
        fontsize=SMALL_PT,
        color=GREY,
    )


def _scales(axes: Axes, rows: list[Row]) -> None:
    highest = max(row["high"] for row in rows)
    top = next((t for t in TOPS if highest <= t), highest)
    axes.set_ylim(1 - 0.08 * (top - 1), 1 + 1.08 * (top - 1))
    axes.set_ylabel("hypervolume")
    axes.set_xlim(0.5, len(rows) + 0.5)
    shown = _spread(len(rows))
    axes.set_xticks([i + 1 for i in shown], [_when(rows[i]["started_at"]) for i in shown])
    axes.set_xlabel("record")
    axes.tick_params(axis="x", labelcolor=INK)


def _spread(count: int, most: int = 8) -> list[int]:
    """Which of so many records are named: the first, the last, and some between them."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


def _when(started_at: str) -> str:
    moment = datetime.fromisoformat(started_at)
    return f"{moment:%Y-%m-%d}\n{moment:%H:%M}"


def _words(axes: Axes, first: Row) -> None:
    spanned = " x ".join(first["dimensions"])
    below = f"{first['machine']}\n{spanned}, relative to {first['reference']}; {first['windows']}"
    above: dict[str, Any] = {"xy": (0, 1), "xycoords": "axes fraction", "textcoords": "offset points"}
    heading = f"{first['family']}, {first['workload']} tokens"
    axes.annotate(heading, xytext=(0, 36), fontweight="bold", **above)
    axes.annotate(below, xytext=(0, 7), fontsize=SMALL_PT, color=GREY, **above)
