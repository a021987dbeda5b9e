"""The frontier in speed, size and quality: one cube per group, with its points numbered and a key beside it.

A frame in, a figure out. The scales are those of the flat picture, and the same KL scale in every picture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from labkit.plots.frontier import axis_names, grouped, scale_of, words
from labkit.plots.labels import Bar, Place, place_labels
from labkit.plots.marks import MARKS, SAID, Row, link, placed, ratios, text_colour
from labkit.plots.point_key import draw_key, key_height
from labkit.plots.scales import NATS_TICKS, Scale, nats_place, ticks_between
from labkit.plots.style import FADED, GREY, SMALL_PT, WIDTH_IN, house_style

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from mpl_toolkits.mplot3d.axes3d import Axes3D

PANEL_IN = 4.0
_AROUND_IN = 1.0
_LARGER = 1.5
_TICKS = 5
_PARTS = 8
_VIEW = (22.0, -58.0)
_ROOM = 0.06
LEGEND = (
    f"{SAID}\nBars: 95% intervals; a thin line leads down to the floor. 1x is the reference.\n"
    "Better is right, near and up: faster, smaller, with a lower KL. One below 1e-4 nats stands at the top."
)

Place3D = tuple[float, float, float]


def frontier_3d_figure(frame: pandas.DataFrame) -> Figure:
    """One cube per group of `labkit.frontier.table.frontier_frame`: speed, bytes held and KL, all log scales.

    A column `link`, where the frame has one, is where a click on the point or its line in the key leads in
    the SVG. A point that lacks an axis has no place and stands in the key alone. Raise NoRecords for an empty
    frame.
    """
    with house_style():
        return _figure(grouped(frame))


def _figure(groups: list[list[Row]]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rooms = [_room(rows) for rows in groups]
    total = sum(room.height for room in rooms) + 1.0
    figure = Figure(figsize=(WIDTH_IN, total))
    canvas = FigureCanvasAgg(figure)
    top = total
    for rows, room in zip(groups, rooms, strict=True):
        cube, key = _areas(figure, top - _AROUND_IN, room)
        labels, bars = _draw(cube, rows)
        figure.draw_without_rendering()
        place_labels(cube, labels, bars, [], canvas.get_renderer())
        words(cube, rows)
        draw_key(key, rows, room.columns)
        top -= room.height
    figure.text(0.01, 0.08 / total, LEGEND, fontsize=SMALL_PT, color=GREY, va="bottom")
    return figure


@dataclass(frozen=True, slots=True)
class _Room:
    """How much a group takes, in inches. columns: of its key, which is beside the cube if one."""

    cube: tuple[float, float]
    key: float
    columns: int

    @property
    def height(self) -> float:
        beside = max(self.cube[1], self.key)
        return _AROUND_IN + (beside if self.columns == 1 else self.cube[1] + self.key)


def _room(rows: list[Row]) -> _Room:
    """A key as high as the cube at most stands beside it, a longer one below a larger cube."""
    width = 0.54 * WIDTH_IN
    if key_height(rows, 1) <= PANEL_IN:
        return _Room((width, PANEL_IN), key_height(rows, 1), 1)
    return _Room((_LARGER * width, _LARGER * PANEL_IN), key_height(rows, 2), 2)


def _areas(figure: Figure, top: float, room: _Room) -> tuple[Axes3D, Axes]:
    """The cube and the axes of its key, which hang from `top`, in inches."""
    import mpl_toolkits.mplot3d  # noqa: F401  # registers the projection

    total, (wide, high) = figure.get_figheight(), room.cube
    cube = figure.add_axes((0.02, (top - high) / total, wide / WIDTH_IN, high / total), projection="3d")
    left, top = (0.62, top) if room.columns == 1 else (0.02, top - high)
    key = figure.add_axes((left, (top - room.key) / total, 0.99 - left, room.key / total))
    return cast("Axes3D", cube), key


def _draw(cube: Axes3D, rows: list[Row]) -> tuple[list[Annotation], list[Bar]]:
    """Draw a group; give its numbers and where its points are on the paper."""
    known = [(number, row) for number, row in enumerate(rows, 1) if has_place(row)]
    scales = [scale_of([row for _, row in known], axis) for axis in ("speed", "size")]
    _frame(cube, scales, rows[0])
    for _, row in known:
        _point(cube, row)
    labels = [_number(cube, number, row) for number, row in known]
    return labels, [bar for _, row in known for bar in _covered(cube, row)]


def has_place(row: Row) -> bool:
    """Whether the point has all three axes."""
    return placed(row) and row["quality"] == row["quality"]


def _frame(cube: Axes3D, scales: list[Scale], first: Row) -> None:
    """Fixed limits and ticks; the smaller is nearer, and the lower KL higher."""
    cube.view_init(*_VIEW)
    cube.set_box_aspect((1.1, 1.0, 0.85))
    cube.set_xlim(*_roomy(scales[0]))
    cube.set_ylim(*_roomy(scales[1]))
    cube.set_zlim(nats_place(math.inf), nats_place(0.0))
    for axis, scale in zip((cube.xaxis, cube.yaxis), scales, strict=True):
        ticks = ticks_between(scale.low, scale.high, _TICKS)
        axis.set_ticks([math.log10(t) for t in ticks], [f"{t:g}x" for t in ticks])
    cube.zaxis.set_ticks([math.log10(t) for t in NATS_TICKS], [f"{t:g}" for t in NATS_TICKS])
    speed, size = axis_names(first)
    cube.set_xlabel(speed, fontsize=SMALL_PT)
    cube.set_ylabel(size, fontsize=SMALL_PT)
    cube.set_zlabel("KL, nats", fontsize=SMALL_PT)
    cube.zaxis.set_tick_params(labelsize=SMALL_PT - 1, pad=6)
    for axis in (cube.xaxis, cube.yaxis, cube.zaxis):
        cast("Any", axis).set_pane_color((1.0, 1.0, 1.0, 0.0))
    for axis in (cube.xaxis, cube.yaxis):
        axis.set_tick_params(labelsize=SMALL_PT - 1, pad=2)


def _roomy(scale: Scale) -> tuple[float, float]:
    low, high = math.log10(scale.low), math.log10(scale.high)
    room = _ROOM * (high - low)
    return low - room, high + room


def _point(cube: Axes3D, row: Row) -> None:
    """A mark with its three intervals and a line to the floor, each of which leads to the record."""
    x, y, z = _place(row)
    style = dict(MARKS[row["status"]])
    drawn = cube.plot([x], [y], [z], linestyle="", markersize=8, markeredgewidth=1.6, **style)
    bars: dict[str, Any] = {"color": style["color"], "linewidth": 1.6, "zorder": 2.5}
    for start, stop in _intervals(cube, row):
        drawn += cube.plot(*zip(start, stop, strict=True), **bars)
    floor = cube.get_zlim()[0]
    drawn += cube.plot([x, x], [y, y], [z, floor], color=FADED, linewidth=0.8, zorder=1)
    for artist in drawn:
        artist.set_url(link(row))


def _place(row: Row) -> Place3D:
    speed, size = (math.log10(ratios(row, axis)[0]) for axis in ("speed", "size"))
    return speed, size, nats_place(row["quality"])


def _intervals(cube: Axes3D, row: Row) -> list[tuple[Place3D, Place3D]]:
    """From where to where each of the three bars goes, as far as the cube shows it."""
    middle = _place(row)
    found = []
    for axis, (low, high) in enumerate(_ends(cube, row)):
        start, stop = ((*middle[:axis], end, *middle[axis + 1 :]) for end in (low, high))
        found.append((cast("Place3D", start), cast("Place3D", stop)))
    return found


def _covered(cube: Axes3D, row: Row) -> list[Bar]:
    """What a point and its bars cover on the paper, as small boxes."""
    parts = [i / _PARTS for i in range(_PARTS + 1)]
    boxes: list[Bar] = []
    for start, stop in _intervals(cube, row):
        line = [tuple(a + t * (b - a) for a, b in zip(start, stop, strict=True)) for t in parts]
        for (x0, y0), (x1, y1) in pairwise(_on_paper(cube, cast("Place3D", each)) for each in line):
            boxes.append((min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)))
    return boxes


def _on_paper(cube: Axes3D, place: Place3D) -> Place:
    from mpl_toolkits.mplot3d import proj3d

    across, upwards, _ = proj3d.proj_transform(*place, cube.get_proj())
    return float(across), float(upwards)


def _ends(cube: Axes3D, row: Row) -> list[tuple[float, float]]:
    """Both ends on each axis, as far as the cube shows them."""
    found = [tuple(map(math.log10, ratios(row, axis)[1:])) for axis in ("speed", "size")]
    found.append((nats_place(row["quality_low"]), nats_place(row["quality_high"])))
    limits = (sorted(cube.get_xlim()), sorted(cube.get_ylim()), sorted(cube.get_zlim()))
    return [
        (max(start, low), min(stop, high)) for (start, stop), (low, high) in zip(found, limits, strict=True)
    ]


def _number(cube: Axes3D, number: int, row: Row) -> Annotation:
    label = cube.annotate(
        str(number),
        _on_paper(cube, _place(row)),
        xytext=(12, 0),
        textcoords="offset points",
        color=text_colour(row),
        fontsize=SMALL_PT,
        url=link(row),
    )
    label.set_in_layout(False)
    return label
