"""The picture of a paired run: a forest of its axes with every pair, and the raw samples below. Frames in."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

from labkit.core.errors import NoRecords, RecordInvalid
from labkit.core.metrics import METRICS
from labkit.plots.amounts import interval, ratio_interval
from labkit.plots.samples import legend_marks, look_places, sample_panel, samples
from labkit.plots.style import (
    BAND,
    FADED,
    GREY,
    INK,
    SMALL_PT,
    TITLE_PT,
    VERDICT_COLOURS,
    WIDTH_IN,
    house_style,
)

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[Any, Any]

ROW_IN = 0.72
ABSOLUTE_IN = 1.25
FRAME_IN = 2.2
LEGEND_IN = 0.45
SAMPLE_IN = 1.0
SAMPLE_GAP_IN = 0.42
SAMPLES_FRAME_IN = 1.0
TICKS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98),
    *(1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0),
)


def verdict_figure(
    axes_frame: pandas.DataFrame, pairs_frame: pandas.DataFrame, visits_frame: pandas.DataFrame
) -> Figure:
    """The verdicts of one run, and below them every sample that they rest on.

    A row per ratio axis on one log scale, a panel per absolute axis, then a panel of visits in the order they
    were made per metric that visits measure. axes_frame: one run's rows of `labkit.store.query.axes`.
    pairs_frame, visits_frame: rows of `pairs` and `visits`, of which those of this run are drawn. Ratios are
    improvements: right of 1 the candidate is better. Raise NoRecords without rows, RecordInvalid where they
    belong to several runs.
    """
    rows: list[Row] = axes_frame.to_dict("records")
    runs = sorted({r["run_id"] for r in rows})
    if not runs:
        raise NoRecords("verdicts were needed for a picture", next_step="labkit run experiments/<file>.py")
    if len(runs) > 1:
        raise RecordInvalid("the verdicts of one run were needed", got=f"{len(runs)} runs", options=runs)
    pairs, visits = (
        [r for r in frame.to_dict("records") if r["run_id"] == runs[0]]
        for frame in (pairs_frame, visits_frame)
    )
    with house_style():
        return _figure(rows, pairs, visits)


def _figure(rows: list[Row], pairs: list[Row], visits: list[Row]) -> Figure:
    from matplotlib.figure import Figure

    ratios = [r for r in rows if r["scale"] == "ratio"]
    absolutes = [r for r in rows if r["scale"] == "absolute"]
    sampled = [r for r in rows if METRICS[r["metric"]].source == "visit"] if visits else []
    heights = [ROW_IN * len(ratios)] * bool(ratios) + [ABSOLUTE_IN * 0.4] * len(absolutes)
    heights += ([LEGEND_IN] + [SAMPLE_IN] * len(sampled)) if sampled else []
    total = FRAME_IN + ROW_IN * len(ratios) + ABSOLUTE_IN * len(absolutes)
    total += (SAMPLES_FRAME_IN + (SAMPLE_IN + SAMPLE_GAP_IN) * len(sampled)) if sampled else 0
    figure = Figure(figsize=(WIDTH_IN, total), layout="constrained")
    panels = list(figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0])
    _heading(figure, rows[0])
    figure.supxlabel(_legend(rows), x=0.01, ha="left", fontsize=SMALL_PT, color=GREY)
    if ratios:
        _ratio_panel(panels.pop(0), ratios, pairs)
    for row in absolutes:
        _absolute_panel(panels.pop(0), row)
    if sampled:
        _samples(panels, sampled, visits)
    return figure


def _legend(rows: list[Row]) -> str:
    """How to read the forest; the level of an interval is that of the look which decided."""
    levels = sorted({f"{100 * (1 - row['alpha']):.3g}%" for row in rows})
    strip = " Strip in it: the A/A floor." if any(row["floor"] > 0 for row in rows) else ""
    words = f"Dot: a pair. Diamond, bar: estimate and {' or '.join(levels)} interval. Shaded: the margin."
    return words + strip


def _samples(panels: list[Axes], rows: list[Row], visits: list[Row]) -> None:
    """The legend with its counts, then a panel per metric; the lowest has the axis of visits."""
    looks = look_places(visits, _look_pairs(rows[0]))
    legend, *panels = panels
    legend.set_axis_off()
    for panel, row in zip(panels, rows, strict=True):
        sample_panel(panel, row["metric"], samples(visits, row["metric"]), looks)
        panel.tick_params(axis="x", labelbottom=panel is panels[-1])
    marks = legend_marks(samples(visits, rows[0]["metric"]))
    legend.legend(
        handles=marks, loc="lower left", bbox_to_anchor=(0, 0), ncols=3, fontsize=SMALL_PT, frameon=False
    )
    words = "visit, in the order they were made; lines join the two of a pair"
    panels[-1].set_xlabel(words + ("; dashed: a look" if looks else ""), fontsize=SMALL_PT, color=GREY)


def _look_pairs(row: Row) -> list[int]:
    """After how many pairs the looks were taken; none where only the end was looked at."""
    several = (row.get("looks_planned") or 1) > 1
    return [int(pairs) for pairs in row["look_pairs"]] if several else []


def _heading(figure: Figure, row: Row) -> None:
    """A bold title and grey lines below it, whose room the title's empty lines keep free."""
    noise = "" if row["quiet"] is True else " (busy when this was measured)"
    where = f"{row['prompt_tokens']}+{row['new_tokens']} tokens on {row['machine']}{noise}"
    lines = [*textwrap.wrap(row["statement"], 105), where]
    found = "a control" if row["kind"] == "control" else row["outcome"]
    title = f"{row['experiment']}: {found}" + "\n" * len(lines)
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=TITLE_PT)
    below = figure.text(
        0.01, 1 - 0.38 / figure.get_figheight(), "\n".join(lines), va="top", fontsize=SMALL_PT, color=GREY
    )
    below.set_in_layout(False)


def _ratio_panel(axes: Axes, rows: list[Row], pairs: list[Row]) -> None:
    dots = [
        [p["ratio"] for p in pairs if p["metric"] == r["metric"] and p["ratio"] == p["ratio"]] for r in rows
    ]
    axes.set_xscale("log")
    _ratio_limits(axes, rows, dots)
    for y, (row, mine) in enumerate(zip(rows, dots, strict=True)):
        margin = 1 + row["margin"]
        _row(axes, row, y, (1 / margin, margin))
        spread = [y - 0.3 + 0.26 * i / max(1, len(mine) - 1) for i in range(len(mine))]
        axes.plot(mine, spread, "o", color=GREY, alpha=0.55, markersize=3.2, markeredgewidth=0, zorder=3)
    axes.axvline(1, color=INK, linewidth=1, zorder=2)
    axes.set_xlabel("improvement over the baseline, ratio (right of 1 is better)")
    _rows_axis(axes, rows)


def _ratio_limits(axes: Axes, rows: list[Row], dots: list[list[float]]) -> None:
    from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

    reach = [1 + r["margin"] for r in rows] + [1 / (1 + r["margin"]) for r in rows]
    reach += [x for r in rows for x in _floor_band(r)]
    reach += [r[end] for r in rows for end in ("low", "high")] + [x for mine in dots for x in mine]
    low, high = math.log(min(reach)), math.log(max(reach))
    room = max(0.06 * (high - low), 0.01)
    axes.set_xlim(math.exp(low - room), math.exp(high + room))
    ticks = _ticks(low - room, high + room)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])


def _ticks(low: float, high: float) -> list[float]:
    """Round ratios within the log limits, 1 first and then whatever keeps its distance."""
    apart = (high - low) / 11
    chosen: list[float] = []
    for tick in sorted(TICKS, key=lambda t: abs(math.log(t))):
        at = math.log(tick)
        if low <= at <= high and all(abs(at - math.log(c)) >= apart for c in chosen):
            chosen.append(tick)
    return sorted(chosen)


def _absolute_panel(axes: Axes, row: Row) -> None:
    low, high, words = _absolute_terms(row)
    _row(axes, row, 0, (low, high))
    reach = (0.0, low, high, row["low"], row["high"])
    room = 0.12 * (max(reach) - min(reach)) or 1e-6
    axes.set_xlim(min(reach) - room, max(reach) + room)
    axes.axvline(0, color=INK, linewidth=1, zorder=2)
    axes.set_xlabel(words)
    _rows_axis(axes, [row])


def _absolute_terms(row: Row) -> tuple[float, float, str]:
    """The ends of the margin, and what the axis of an absolute metric stands for."""
    margin, lower = row["margin"], row["better"] == "lower"
    if METRICS[row["metric"]].source == "visit":
        side = "left" if lower else "right"
        return -margin, margin, f"candidate less baseline, {row['metric_unit']} ({side} of 0 is better)"
    # Distances from the reference: nothing is better than none, so the margin has one side.
    worse = margin if lower else -margin
    return min(0.0, worse), max(0.0, worse), f"distance from the baseline, {row['metric_unit']} (0 is none)"


def _row(axes: Axes, row: Row, y: int, band: tuple[float, float]) -> None:
    """The margin, the interval, the estimate, and the verdict at the right; no mark where n is 0."""
    colour = VERDICT_COLOURS[row["verdict"]]
    axes.barh(y, band[1] - band[0], left=band[0], height=0.74, color=BAND, zorder=1)
    if row["floor"] > 0:
        low, high = _floor_band(row)
        axes.barh(y + 0.34, high - low, left=low, height=0.06, color=FADED, zorder=2)
    if row["n"]:
        _interval(axes, row, y + (0.14 if row["scale"] == "ratio" else 0.0), colour)
    right = axes.get_yaxis_transform()
    axes.text(1.02, y - 0.04, row["verdict"], transform=right, color=colour, fontweight="bold", va="bottom")
    axes.text(1.02, y + 0.04, _numbers(row), transform=right, color=INK, fontsize=SMALL_PT, va="top")


def _floor_band(row: Row) -> tuple[float, float]:
    """What two equal arms lie within, on the row's scale."""
    floor = row["floor"]
    return (1 / (1 + floor), 1 + floor) if row["scale"] == "ratio" else (-floor, floor)


def _interval(axes: Axes, row: Row, y: float, colour: str) -> None:
    axes.plot(
        [row["low"], row["high"]],
        [y, y],
        color=colour,
        linewidth=2.5,
        marker="|",
        markersize=9,
        solid_capstyle="butt",
        zorder=4,
    )
    axes.plot([row["estimate"]], [y], "D", color=colour, markersize=7, markeredgewidth=0, zorder=5)


def _numbers(row: Row) -> str:
    if not row["n"]:
        return "not measured"
    if row["scale"] == "absolute":
        return interval(row["estimate"], row["low"], row["high"], row["metric_unit"], 2)
    return ratio_interval(row["estimate"], row["low"], row["high"])


def _rows_axis(axes: Axes, rows: list[Row]) -> None:
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [f"{r['title']}\n{_goal(r)}" for r in rows])
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)


def _goal(row: Row) -> str:
    by = f"{100 * row['margin']:g}%" if row["scale"] == "ratio" else f"{row['margin']:g} {row['metric_unit']}"
    return f"to improve by {by}" if row["goal"] == "improves" else f"to hold within {by}"
