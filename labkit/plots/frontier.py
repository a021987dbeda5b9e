"""The frontier's picture: one panel per group of comparable points. A frame in, a figure out."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from labkit.core.errors import NoRecords
from labkit.core.metrics import METRICS
from labkit.plots.amounts import byte_scale, interval
from labkit.plots.labels import Bar, Place, place_labels
from labkit.plots.style import BLUE, FADED, GREY, INK, ORANGE, SMALL_PT, WIDTH_IN, house_style

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

Row = dict[Any, Any]

PANEL_IN = 4.0
LOG_FROM = 5.0
LEGEND = (
    "Filled: not dominated. Hollow: dominated. Diamond: an axis is missing.\n"
    "Bars: 95% intervals. Better is right and down, with a lower KL."
)

_MARKS: dict[str, dict[str, Any]] = {
    "frontier": {"fmt": "o", "color": BLUE, "markerfacecolor": BLUE, "zorder": 4},
    "dominated": {"fmt": "o", "color": FADED, "markerfacecolor": "white", "zorder": 3},
    "incomparable": {"fmt": "D", "color": ORANGE, "markerfacecolor": "white", "zorder": 3},
}


def frontier_figure(frame: pandas.DataFrame) -> Figure:
    """One panel per group of `labkit.frontier.table.frontier_frame`: speed across, bytes held upwards.

    Intervals are bars; non-dominated points are filled and joined, dominated ones hollow and grey. A point
    without speed or size has no place and is named in its panel. Raise NoRecords for an empty frame.
    """
    if frame.empty:
        raise NoRecords("points were needed for a picture", next_step="labkit run experiments/<file>.py")
    groups: dict[int, list[Row]] = {}
    for row in frame.to_dict("records"):
        groups.setdefault(row["group"], []).append(row)
    with house_style():
        return _figure(list(groups.values()))


def _figure(groups: list[list[Row]]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, PANEL_IN * len(groups) + 0.5), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    panels = figure.subplots(len(groups), 1, squeeze=False)[:, 0]
    placing = [_panel(axes, rows) for axes, rows in zip(panels, groups, strict=True)]
    figure.supxlabel(LEGEND, x=0.01, ha="left", fontsize=SMALL_PT, color=GREY)
    # Labels are placed in pixels, so the layout is settled first and then held.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes, (labels, bars, path) in zip(panels, placing, strict=True):
        place_labels(axes, labels, bars, path, canvas.get_renderer())
    return figure


def _panel(axes: Axes, rows: list[Row]) -> tuple[list[Annotation], list[Bar], list[Place]]:
    """Draw a group; give its labels and what they must not cover."""
    placed = [r for r in rows if r["speed"] == r["speed"] and r["size"] == r["size"]]
    unit, unit_name = byte_scale(max((r["size"] for r in placed), default=1.0))
    for row in placed:
        _mark(axes, row, unit)
    best = sorted((r["speed"], r["size"] / unit) for r in placed if r["status"] == "frontier")
    axes.plot([x for x, _ in best], [y for _, y in best], color=BLUE, alpha=0.3, linewidth=1.4, zorder=2)
    _scales(axes, placed, unit)
    _words(axes, rows, unit_name)
    _name_lost(axes, [r for r in rows if r not in placed])
    bars = [(r["speed_low"], r["size_low"] / unit, r["speed_high"], r["size_high"] / unit) for r in placed]
    return [_label(axes, row, unit) for row in placed], bars, best


def _mark(axes: Axes, row: Row, unit: float) -> None:
    x, y = row["speed"], row["size"] / unit
    axes.errorbar(
        [x],
        [y],
        xerr=[[x - row["speed_low"]], [row["speed_high"] - x]],
        yerr=[[y - row["size_low"] / unit], [row["size_high"] / unit - y]],
        markersize=9,
        markeredgewidth=1.6,
        elinewidth=1.8,
        capsize=3,
        **_MARKS[row["status"]],
    )


def _scales(axes: Axes, placed: list[Row], unit: float) -> None:
    """Limits with room for labels; a log scale across where speeds lie far apart."""
    if not placed:
        axes.set_xticks([])
        axes.set_yticks([])
        return
    _speed_scale(axes, min(r["speed_low"] for r in placed), max(r["speed_high"] for r in placed))
    sizes = [r[end] / unit for r in placed for end in ("size_low", "size_high")]
    axes.set_ylim(*_roomy(min(sizes), max(sizes)))
    axes.ticklabel_format(axis="y", useOffset=False, style="plain")


def _speed_scale(axes: Axes, low: float, high: float) -> None:
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    if low > 0 and high / low > LOG_FROM:
        room = (high / low) ** 0.35
        axes.set_xscale("log")
        axes.set_xlim(low / room, high * room)
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.set_xlim(*_roomy(low, high))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))


def _roomy(low: float, high: float) -> tuple[float, float]:
    room = max(0.35 * (high - low), 0.03 * abs(high), 1e-9)
    return low - room, high + room


def _words(axes: Axes, rows: list[Row], unit: str) -> None:
    first = rows[0]
    speed = METRICS[first["speed_metric"]]
    axes.set_xlabel(f"{speed.title}, {speed.unit}")
    axes.set_ylabel(f"bytes held (artifact + KV), {unit}")
    below = f"{first['machine']}\nreference {first['reference']}; {first['windows']}"
    if len({(r["code_hash"], r["packages_hash"]) for r in rows}) > 1:
        below += "; several versions of code or packages"
    if not all(r["quiet"] is True for r in rows):
        below += "; some of it measured on a busy machine"
    heading = f"{first['family']}, {first['workload']} tokens"
    above: dict[str, Any] = {"xy": (0, 1), "xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate(heading, xytext=(0, 36), fontweight="bold", **above)
    axes.annotate(below, xytext=(0, 7), fontsize=SMALL_PT, color=GREY, **above)


def _name_lost(axes: Axes, lost: list[Row]) -> None:
    if lost:
        names = "; ".join(f"{r['label']} (no {', '.join(r['missing'])})" for r in lost)
        text = "\n".join(textwrap.wrap(f"Without a place: {names}", 90))
        axes.text(0.01, 0.02, text, transform=axes.transAxes, fontsize=SMALL_PT, color=INK, va="bottom")


def _label(axes: Axes, row: Row, unit: float) -> Annotation:
    kl = interval(row["quality"], row["quality_low"], row["quality_high"], "nats", 2)
    second = "the reference" if row["arm_hash"] == row["reference_hash"] else f"KL {kl}"
    label = axes.annotate(
        f"{row['short_label']}\n{second}",
        (row["speed"], row["size"] / unit),
        xytext=(12, 0),
        textcoords="offset points",
        color=GREY if row["status"] == "dominated" else INK,
        fontsize=SMALL_PT + 0.5,
        zorder=2.5,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
    )
    label.set_in_layout(False)
    return label
