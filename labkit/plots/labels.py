"""Labels: texts beside points, each where it covers the least. Knows boxes, not what they mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from labkit.plots.style import FADED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import RendererBase
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

Place = tuple[float, float]
Bar = tuple[float, float, float, float]

_ANGLES = tuple(math.radians(a) for a in (0, 180, 40, 140, -40, -140, 90, -90, 65, 115, -65, -115))
_REACHES_PT = (12.0, 24.0, 40.0, 60.0, 85.0)
_MARK_PX = 10.0
_SWEEPS = 3
_MISREAD_PX2 = 6000.0
# What is cut off cannot be read at all.
_CUT = 10.0
_BEADS = 40
_BEAD_PX = 3.0
_LINE_FROM_PT = 20.0
_LINE = {"arrowstyle": "-", "color": FADED, "linewidth": 0.8, "shrinkA": 0.0, "shrinkB": 5.0}


def place_labels(
    axes: Axes,
    labels: Sequence[Annotation],
    bars: Sequence[Bar],
    path: Sequence[Place],
    renderer: RendererBase,
) -> None:
    """Move annotations (offset in points from their data points) off all marks, each other and the edge.

    bars: (x0, y0, x1, y1) of each point with its intervals, path: the corners of the line, in data units.
    Each takes its best of twelve directions and five distances, and again once the others have theirs; one
    moved far gets a line to its point. The axes must have their final size and limits.
    """
    taken = [_around(axes, (x0, y0), (x1, y1), _MARK_PX) for x0, y0, x1, y1 in bars] + _along(axes, path)
    marks = [_around(axes, label.xy, label.xy, _MARK_PX) for label in labels]
    boxes: dict[int, Bbox] = {}
    for i in [*range(len(labels))] * _SWEEPS:
        rest = [box for j, box in boxes.items() if j != i]
        others = [mark for j, mark in enumerate(marks) if j != i]
        scene = _Scene(marks[i], others, taken + rest, axes.get_window_extent(renderer), renderer)
        _move(labels[i], min(_places(), key=lambda place, i=i, scene=scene: _cost(labels[i], place, scene)))
        boxes[i] = labels[i].get_window_extent(renderer)
    for label in labels:
        if math.hypot(*label.get_position()) > _LINE_FROM_PT:
            axes.annotate(
                "", label.xy, label.get_position(), textcoords="offset points", arrowprops=_LINE, zorder=1
            )


@dataclass(frozen=True, slots=True)
class _Scene:
    """What one label finds around it, in pixels: its mark, the other marks, and all that is taken."""

    own: Bbox
    others: Sequence[Bbox]
    taken: Sequence[Bbox]
    inside: Bbox
    renderer: RendererBase


def _places() -> list[Place]:
    return [(r * math.cos(a), r * math.sin(a)) for r in _REACHES_PT for a in _ANGLES]


def _move(label: Annotation, place: Place) -> None:
    x, y = place
    label.set_position(place)
    label.set_horizontalalignment("center" if abs(x) < 1 else "left" if x > 0 else "right")
    label.set_verticalalignment("center" if abs(y) < 1 else "bottom" if y > 0 else "top")


def _around(axes: Axes, start: Place, end: Place, room: float) -> Bbox:
    """The pixels from one data point to another, with room about them."""
    from matplotlib.transforms import Bbox

    (x0, y0), (x1, y1) = axes.transData.transform([start, end])
    return Bbox.from_extents(x0 - room, y0 - room, x1 + room, y1 + room)


def _along(axes: Axes, path: Sequence[Place]) -> list[Bbox]:
    """Small boxes along a line, which is straight in pixels whatever the scales."""
    from matplotlib.transforms import Bbox

    corners = axes.transData.transform(path) if len(path) > 1 else []
    boxes = []
    for (x0, y0), (x1, y1) in pairwise(corners):
        steps = [(x0 + (x1 - x0) * t / _BEADS, y0 + (y1 - y0) * t / _BEADS) for t in range(_BEADS + 1)]
        boxes += [Bbox.from_extents(x - _BEAD_PX, y - _BEAD_PX, x + _BEAD_PX, y + _BEAD_PX) for x, y in steps]
    return boxes


def _cost(label: Annotation, place: Place, scene: _Scene) -> tuple[float, float]:
    """Pixels squared covered, cut off, or to be misread as another point's label; then the distance."""
    _move(label, place)
    box = label.get_window_extent(scene.renderer)
    cut = box.width * box.height - _shared(box, scene.inside)
    covered = sum(_shared(box, other) for other in scene.taken)
    own = _gap(box, scene.own)
    misread = sum(_gap(box, other) <= own + _MARK_PX for other in scene.others)
    return round(_CUT * cut + covered + _MISREAD_PX2 * misread), math.hypot(*place)


def _gap(a: Bbox, b: Bbox) -> float:
    across = max(a.x0 - b.x1, b.x0 - a.x1, 0.0)
    upwards = max(a.y0 - b.y1, b.y0 - a.y1, 0.0)
    return math.hypot(across, upwards)


def _shared(a: Bbox, b: Bbox) -> float:
    width = min(a.x1, b.x1) - max(a.x0, b.x0)
    height = min(a.y1, b.y1) - max(a.y0, b.y0)
    return max(0.0, width) * max(0.0, height)
