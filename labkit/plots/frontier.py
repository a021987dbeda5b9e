"""The frontier's picture: one panel per group of comparable points. A frame in, a figure out.

Positions are ratios to the group's reference on scales that stay where they are as points come, so that two
pictures of a group can be laid side by side.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from labkit.core.errors import NoRecords
from labkit.core.metrics import METRICS
from labkit.plots.amounts import amount
from labkit.plots.labels import Bar, Place, place_labels
from labkit.plots.marks import MARKS, SAID, Row, link, placed, ratios, text_colour
from labkit.plots.point_key import draw_key, key_height, quality
from labkit.plots.scales import Scale, ratio_scale
from labkit.plots.style import BLUE, FADED, GREY, INK, SMALL_PT, WIDTH_IN, house_style

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

# Of a panel itself, and of what stands around it.
PANEL_IN = 3.0
_AROUND_IN = 1.15
_MORE_IN = 1.5
# More points than this are numbered, with a key below a higher panel.
NAMED = 5
_COLUMNS = 2
_ROOM = 0.15
_LAYERS = 2.5
LEGEND = (
    f"{SAID}\nBars: 95% intervals. Better is right and down, with a lower KL.\n"
    "Bytes held: the artifact and the KV cache. 1x is the reference."
)

Drawn = tuple["Axes", "list[Annotation]", "list[Bar]", "list[Place]"]


def frontier_figure(frame: pandas.DataFrame) -> Figure:
    """One panel per group of `labkit.frontier.table.frontier_frame`: speed across, bytes held upwards.

    Both are ratios to the reference, on the scales of `labkit.plots.scales`. Intervals are bars, which end in
    an arrow where they leave the panel; the non-dominated ones that no
    other is faster and smaller than are joined. A column `link`, where the frame has
    one, is where a click on the point leads in the SVG. A point without speed or size has no place and is
    named in its panel. Raise NoRecords for an empty frame.
    """
    with house_style():
        return _figure(grouped(frame))


def grouped(frame: pandas.DataFrame) -> list[list[Row]]:
    """The rows of each group. Raise NoRecords for an empty frame."""
    if frame.empty:
        raise NoRecords("points were needed for a picture", next_step="labkit run experiments/<file>.py")
    groups: dict[int, list[Row]] = {}
    for row in frame.to_dict("records"):
        groups.setdefault(row["group"], []).append(row)
    return list(groups.values())


def _figure(groups: list[list[Row]]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    keys = [key_height(rows, _COLUMNS) if len(rows) > NAMED else 0.0 for rows in groups]
    heights = [h for key in keys for h in ([PANEL_IN + _MORE_IN, key] if key else [PANEL_IN])]
    total = sum(heights) + _AROUND_IN * len(groups) + 0.5
    figure = Figure(figsize=(WIDTH_IN, total), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    panels = list(figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0])
    drawn: list[Drawn] = []
    below: list[tuple[Axes, list[Row]]] = []
    for rows, key in zip(groups, keys, strict=True):
        drawn.append(_panel(panels.pop(0), rows, numbered=bool(key)))
        if key:
            below.append((panels.pop(0), rows))
            below[-1][0].set_axis_off()
    figure.supxlabel(LEGEND, x=0.01, ha="left", fontsize=SMALL_PT, color=GREY)
    # Labels are placed in pixels, so the layout is settled first and then held.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes, labels, bars, path in drawn:
        place_labels(axes, labels, bars, path, canvas.get_renderer())
    for axes, rows in below:
        draw_key(axes, rows, _COLUMNS)
    return figure


def _panel(axes: Axes, rows: list[Row], numbered: bool) -> Drawn:
    """Draw a group; give its labels and what they must not cover."""
    known = [r for r in rows if placed(r)]
    _scales(axes, known)
    for row in known:
        _mark(axes, row)
    best = _staircase([_place(r) for r in known if r["status"] == "frontier"])
    axes.plot([x for x, _ in best], [y for _, y in best], color=BLUE, alpha=0.3, linewidth=1.4, zorder=2)
    words(axes, rows)
    across, upwards = axis_names(rows[0])
    axes.set_xlabel(across)
    axes.set_ylabel(upwards)
    name_lost(axes, [r for r in rows if not placed(r)])
    names = {id(r): str(n) if numbered else _name(r) for n, r in enumerate(rows, 1)}
    labels = [_label(axes, row, names[id(row)]) for row in known]
    return axes, labels, [_bar(axes, row) for row in known], best


def _staircase(places: list[Place]) -> list[Place]:
    """Those that none is faster and smaller than: what is on the frontier for its KL alone is not joined."""
    kept: list[Place] = []
    for place in sorted(places, key=lambda p: (-p[0], p[1])):
        if not kept or place[1] < kept[-1][1]:
            kept.append(place)
    return kept[::-1]


def _place(row: Row) -> Place:
    return ratios(row, "speed")[0], ratios(row, "size")[0]


def _bar(axes: Axes, row: Row) -> Bar:
    """The corners of a point's intervals, as far as the panel shows them."""
    (_, x0, x1), (_, y0, y1) = (ratios(row, axis) for axis in ("speed", "size"))
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    return max(x0, left), max(y0, bottom), min(x1, right), min(y1, top)


def _mark(axes: Axes, row: Row) -> None:
    (x, *_), (y, *_) = (ratios(row, axis) for axis in ("speed", "size"))
    style = dict(MARKS[row["status"]])
    shape = style.pop("marker")
    x0, y0, x1, y1 = _bar(axes, row)
    drawn = axes.errorbar(
        [x],
        [y],
        xerr=[[max(0.0, x - x0)], [max(0.0, x1 - x)]],
        yerr=[[max(0.0, y - y0)], [max(0.0, y1 - y)]],
        fmt=shape,
        markersize=9,
        markeredgewidth=1.6,
        elinewidth=1.8,
        capsize=3,
        **style,
    )
    for artist in drawn.get_children():
        artist.set_url(link(row))
    _arrows(axes, row, style["color"])


def _arrows(axes: Axes, row: Row, colour: str) -> None:
    """An arrow at the edge of the panel for each end of an interval that lies beyond it."""
    (x, *speeds), (y, *sizes) = (ratios(row, axis) for axis in ("speed", "size"))
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    beyond = (
        (speeds[0] < left, left, y, "<"),
        (speeds[1] > right, right, y, ">"),
        (sizes[0] < bottom, x, bottom, "v"),
        (sizes[1] > top, x, top, "^"),
    )
    for there, at_x, at_y, arrow in beyond:
        if there:
            axes.plot([at_x], [at_y], arrow, color=colour, markersize=8, clip_on=False, zorder=5)


def _scales(axes: Axes, known: list[Row]) -> None:
    """Fixed limits, with room for labels beyond them, and fixed ticks."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    scales = (scale_of(known, axis) for axis in ("speed", "size"))
    limits = ((axes.xaxis, axes.set_xlim), (axes.yaxis, axes.set_ylim))
    for scale, (axis, limit) in zip(scales, limits, strict=True):
        room = (scale.high / scale.low) ** _ROOM
        limit(scale.low / room, scale.high * room)
        axis.set_ticks(scale.ticks, [f"{tick:g}x" for tick in scale.ticks])
        axis.set_ticks([], minor=True)
    axes.axvline(1, color=FADED, linewidth=1, zorder=1)
    axes.axhline(1, color=FADED, linewidth=1, zorder=1)


def scale_of(known: list[Row], axis: str) -> Scale:
    """The scale of an axis for the points of a group that have a place."""
    found = [ratios(row, axis) for row in known]
    return ratio_scale([value for value, *_ in found], [end for _, *ends in found for end in ends])


def axis_names(first: Row) -> tuple[str, str]:
    """What speed and size are, with what 1x of each is."""
    speed = METRICS[first["speed_metric"]]
    of = (amount(first["speed_origin"], speed.unit), amount(first["size_origin"], "bytes"))
    known = first["speed_origin"] == first["speed_origin"]
    rates, sizes = (f", 1x = {each}" if known else "" for each in of)
    return f"{speed.title}{rates}", f"bytes held{sizes}"


def words(axes: Axes, rows: list[Row]) -> None:
    """What the group is, above its panel."""
    first = rows[0]
    below = f"{first['machine']}\nreference {first['reference']}; {first['windows']}"
    if len({(r["code_hash"], r["packages_hash"]) for r in rows}) > 1:
        below += "; several versions of code or packages"
    if not all(r["quiet"] is True for r in rows):
        below += "; some of it measured on a busy machine"
    heading = f"{first['family']}, {first['workload']} tokens"
    above: dict[str, Any] = {"xy": (0, 1), "xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate(heading, xytext=(0, 36), fontweight="bold", **above)
    axes.annotate(below, xytext=(0, 7), fontsize=SMALL_PT, color=GREY, **above)


def name_lost(axes: Axes, lost: list[Row]) -> None:
    """The points that have no place, with the axes they lack."""
    if lost:
        names = "; ".join(f"{r['label']} (no {', '.join(r['missing'])})" for r in lost)
        text = "\n".join(textwrap.wrap(f"Without a place: {names}", 90))
        axes.text(0.01, 0.02, text, transform=axes.transAxes, fontsize=SMALL_PT, color=INK, va="bottom")


def _name(row: Row) -> str:
    lines = [row["short_label"], quality(row), row["beside_reference"]]
    return "\n".join(line for line in lines if line)


def _label(axes: Axes, row: Row, text: str) -> Annotation:
    label = axes.annotate(
        text,
        _place(row),
        xytext=(12, 0),
        textcoords="offset points",
        color=text_colour(row),
        fontsize=SMALL_PT + 0.5,
        zorder=_LAYERS,
        url=link(row),
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
    )
    label.set_in_layout(False)
    return label
