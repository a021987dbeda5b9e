"""The picture of a metric over time: results with intervals, levels and steps. A frame in, a figure out."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from labkit.core.errors import NoRecords, RecordInvalid
from labkit.core.metrics import METRICS
from labkit.plots.amounts import byte_scale
from labkit.plots.style import BLUE, FADED, GREEN, GREY, INK, SMALL_PT, VERMILION, WIDTH_IN, house_style

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[Any, Any]

PANEL_IN = 2.6
MOST = 24
STEP_IN = 0.42
LEGEND = (
    "Dots: one record each, with the 95% interval over its own visits. Lines: levels. Hollow: measured on a\n"
    "busy machine or stopped, not counted. Diamond: a record that neither neighbour bears out, in no level."
)
_COLOURS = {"improvement": GREEN, "regression": VERMILION}
_WRAP = 96
_ISO_DAY = 10


def history_figure(frame: pandas.DataFrame) -> Figure:
    """One panel per series of `labkit.lab`'s `history_frame`, records in order across, values upwards.

    Records are evenly spaced, since they come in bursts; dates stand below. Raise NoRecords for an empty
    frame, RecordInvalid for more than 24 series.
    """
    if frame.empty:
        raise NoRecords("records were needed for a picture", next_step="labkit run experiments/<file>.py")
    groups: dict[int, list[Row]] = {}
    for row in frame.to_dict("records"):
        groups.setdefault(row["series"], []).append(row)
    if len(groups) > MOST:
        step = "name an arm, a workload, a machine or an experiment"
        raise RecordInvalid(f"at most {MOST} series fit a picture", got=len(groups), next_step=step)
    with house_style():
        return _figure(list(groups.values()))


def _figure(groups: list[list[Row]]) -> Figure:
    from matplotlib.figure import Figure

    heights = [PANEL_IN + STEP_IN * sum(bool(row["step"]) for row in rows) for rows in groups]
    figure = Figure(figsize=(WIDTH_IN, sum(heights) + 0.6), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.12)  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue]
    panels = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, rows in zip(panels, groups, strict=True):
        _panel(axes, rows)
    figure.supxlabel(LEGEND, x=0.01, ha="left", fontsize=SMALL_PT, color=GREY)
    return figure


def _panel(axes: Axes, rows: list[Row]) -> None:
    metric = METRICS[rows[0]["metric"]]
    largest = max(row["value"] for row in rows)
    scale, unit = byte_scale(largest) if metric.unit == "bytes" else (1.0, metric.unit)
    for place, row in enumerate(rows):
        _dot(axes, place, row, scale)
    _levels(axes, rows, scale)
    _steps(axes, rows)
    _limits(axes, rows, scale)
    _dates(axes, rows)
    axes.set_ylabel(f"{metric.title},\n{unit}")
    axes.set_title(_heading(rows), loc="left", fontsize=SMALL_PT, color=GREY, linespacing=1.35)


def _dot(axes: Axes, place: int, row: Row, scale: float) -> None:
    """low and high may lie on one side of the value where few visits made them; a bar has no such sides."""
    value, low, high = (row[name] / scale for name in ("value", "low", "high"))
    counted = row["counted"] or row["alone"]
    axes.errorbar(
        [place],
        [value],
        yerr=[[max(0.0, value - low)], [max(0.0, high - value)]],
        fmt="D" if row["alone"] else "o",
        color=BLUE if counted else FADED,
        markerfacecolor=(BLUE if row["quiet"] else "white") if counted else "white",
        markersize=6,
        markeredgewidth=1.4,
        elinewidth=1.4,
        capsize=2,
        zorder=3,
    )


def _levels(axes: Axes, rows: list[Row], scale: float) -> None:
    for level in sorted({row["level"] for row in rows if row["counted"]}):
        places = [place for place, row in enumerate(rows) if row["level"] == level]
        value = rows[places[0]]["level_value"] / scale
        ends = [places[0] - 0.35, places[-1] + 0.35]
        axes.plot(ends, [value, value], color=INK, linewidth=1.6, alpha=0.75, zorder=2)


def _steps(axes: Axes, rows: list[Row]) -> None:
    """A dashed line and a number at each step; what it was stands below the heading."""
    numbered = [(place, row) for place, row in enumerate(rows) if row["step"]]
    for number, (place, row) in enumerate(numbered, 1):
        colour = _COLOURS[row["direction"]]
        before = max(p for p in range(place) if rows[p]["counted"])
        at = (before + place) / 2
        axes.axvline(at, color=colour, linewidth=1.4, linestyle=(0, (4, 3)), zorder=1)
        axes.annotate(
            str(number),
            (at, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, -2),
            textcoords="offset points",
            ha="center",
            va="top",
            color=colour,
            fontweight="bold",
            fontsize=SMALL_PT,
            bbox={"facecolor": "white", "edgecolor": colour, "boxstyle": "circle,pad=0.18", "linewidth": 1},
        )


def _limits(axes: Axes, rows: list[Row], scale: float) -> None:
    ends = [row[name] / scale for row in rows for name in ("value", "low", "high")]
    room = max(0.12 * (max(ends) - min(ends)), 0.01 * abs(max(ends)), 1e-9)
    axes.set_ylim(min(ends) - room, max(ends) + 2.2 * room)
    axes.ticklabel_format(axis="y", useOffset=False, style="plain")
    axes.set_xlim(-0.7, max(len(rows) - 0.3, 3.0))


def _dates(axes: Axes, rows: list[Row]) -> None:
    """The day of a record where it is another than that of the one before, as many as have room."""
    days = [row["started_at"][:_ISO_DAY] for row in rows]
    new = [place for place, day in enumerate(days) if place == 0 or day != days[place - 1]]
    apart = max(1, round(len(rows) / 6))
    shown: list[int] = []
    for place in new:
        if not shown or place - shown[-1] >= apart:
            shown.append(place)
    axes.set_xticks(shown, [days[place] for place in shown])
    axes.grid(axis="x", visible=False)


def _heading(rows: list[Row]) -> str:
    first = rows[0]
    lines = [f"{first['label']}, {first['workload']} tokens", f"{first['machine']}"]
    steps = [row["step"] for row in rows if row["step"]]
    for number, step in enumerate(steps, 1):
        lines += textwrap.wrap(f"{number}  {step}", _WRAP, subsequent_indent="    ")
    return "\n".join(lines)
