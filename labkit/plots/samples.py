"""The raw samples of a run: a panel per metric with every visit in the order it was made. Rows in, marks out.

Knows visits and how they count; no verdicts. What is not drawn as a sample is a mark at the edge, and counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from labkit.core.metrics import METRICS
from labkit.plots.amounts import byte_scale
from labkit.plots.style import FADED, GREY, INK, ORANGE, SMALL_PT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

Row = dict[Any, Any]
Kind = Literal["counted", "alone", "warm-up", "noisy", "failed", "no value"]

COLOURS: Mapping[str, str] = {"baseline": INK, "candidate": ORANGE}
MARKERS: Mapping[str, str] = {"baseline": "o", "candidate": "^"}
KINDS: Mapping[Kind, str] = {
    "counted": "",
    "alone": "without its partner",
    "warm-up": "warm-up",
    "noisy": "noisy, made again",
    "failed": "failed",
    "no value": "without a value",
}
# Carets of matplotlib: pointing up from the lower edge, and down from the upper one.
_UP, _DOWN = 6, 7
# Warm-ups and noisy visits may lie far off: they must not press the samples that count into a line.
_ROOM = 0.25


@dataclass(frozen=True, slots=True)
class Sample:
    """A visit as it is drawn. number: its place in the run, from 1. value: NaN where it has none."""

    number: int
    pair: int
    role: str
    kind: Kind
    value: float


def samples(visits: Sequence[Row], metric: str) -> list[Sample]:
    """Every visit of a run, in the order they were made, with its value of a metric and how it counts."""
    ordered = sorted(visits, key=lambda visit: (visit["started_s"], visit["visit"]))
    whole = _whole_pairs(ordered)
    found = []
    for number, visit in enumerate(ordered, start=1):
        value = visit.get(metric)
        value = math.nan if value is None else float(value)
        kind = _kind(visit, value, whole)
        found.append(Sample(number, int(visit["pair"]), str(visit["role"]), kind, value))
    return found


def look_places(visits: Sequence[Row], look_pairs: Sequence[int]) -> list[float]:
    """Where the looks were taken on the axis of visits: after so many pairs that count."""
    ordered = sorted(visits, key=lambda visit: (visit["started_s"], visit["visit"]))
    whole, ends = _whole_pairs(ordered), {}
    for number, visit in enumerate(ordered, start=1):
        if visit["status"] == "ok" and visit["pair"] in whole:
            ends[visit["pair"]] = number
    done = sorted(ends.values())
    return [done[pairs - 1] + 0.5 for pairs in look_pairs if 0 < pairs <= len(done)]


def sample_panel(axes: Axes, metric: str, found: Sequence[Sample], looks: Sequence[float]) -> None:
    """Draw the samples of one metric: both arms, their pairs joined, and what does not count."""
    about, size = METRICS[metric], _mark_size(len(found))
    counted = [s.value for s in found if s.kind == "counted"] or [s.value for s in found if s.value == s.value]
    scale, unit = byte_scale(max(map(abs, counted), default=1.0)) if about.unit == "bytes" else (1.0, about.unit)
    low, high = _limits([value / scale for value in counted])
    axes.set_ylim(low, high)
    axes.set_xlim(0, len(found) + 1)
    axes.set_title(f"{about.title}, {unit}", loc="left", fontsize=SMALL_PT, color=GREY, pad=3)
    for place in looks:
        axes.axvline(place, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    _join(axes, found, scale, size)
    for sample in found:
        _draw(axes, sample, sample.value / scale, (low, high), size)


def legend_marks(found: Sequence[Sample]) -> list[Line2D]:
    """A mark with a count for whatever is drawn, so that the legend adds up to all visits that were made."""
    from matplotlib.lines import Line2D

    marks = []
    for role in COLOURS:
        for kind, words in KINDS.items():
            count = sum(s.role == role and s.kind == kind for s in found)
            if count:
                label = ", ".join(filter(None, (role, words))) + f" ({count})"
                marks.append(Line2D([], [], linestyle="", label=label, **_look(role, kind, 5.0)))
    return marks


def _whole_pairs(visits: Sequence[Row]) -> set[int]:
    """The pairs that count: those with a good visit on both arms."""
    good = [{v["pair"] for v in visits if v["role"] == role and v["status"] == "ok"} for role in COLOURS]
    return set.intersection(*good)


def _kind(visit: Row, value: float, whole: set[int]) -> Kind:
    if visit["status"] == "failed":
        return "failed"
    if math.isnan(value):
        return "no value"
    if visit["status"] == "ok":
        return "counted" if visit["pair"] in whole else "alone"
    return "warm-up" if visit["status"] == "warmup" else "noisy"


def _limits(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = _ROOM * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room


def _mark_size(visits: int) -> float:
    """Points; smaller where there are more of them than the width has room for."""
    return max(2.2, min(5.0, 190.0 / max(visits, 1)))


def _join(axes: Axes, found: Sequence[Sample], scale: float, size: float) -> None:
    """A light line between the two visits of each pair that counts."""
    from matplotlib.collections import LineCollection

    pairs: dict[int, list[tuple[float, float]]] = {}
    for sample in found:
        if sample.kind == "counted":
            pairs.setdefault(sample.pair, []).append((sample.number, sample.value / scale))
    lines = [ends for ends in pairs.values() if len(ends) == 2]
    axes.add_collection(LineCollection(lines, colors=FADED, linewidths=min(1.0, size / 4), zorder=2))


def _draw(axes: Axes, sample: Sample, value: float, limits: tuple[float, float], size: float) -> None:
    low, high = limits
    look = _look(sample.role, sample.kind, size)
    if math.isnan(value):
        value = low
    elif not low <= value <= high:
        value, marker = (low, _DOWN) if value < low else (high, _UP)
        look = {**look, "marker": marker}
    axes.plot([sample.number], [value], linestyle="", zorder=4, clip_on=False, **look)


def _look(role: str, kind: Kind, size: float) -> dict[str, Any]:
    """How a visit of an arm is drawn; size in points."""
    colour, plain = COLOURS[role], {"marker": MARKERS[role], "markersize": size}
    looks: dict[Kind, dict[str, Any]] = {
        "counted": {**plain, "color": colour, "markeredgewidth": 0},
        "alone": {**plain, "color": colour, "markeredgewidth": 0, "alpha": 0.35},
        "warm-up": {
            **plain,
            "markersize": max(2.2, 0.75 * size),
            "markerfacecolor": "white",
            "markeredgecolor": colour,
            "markeredgewidth": 0.8,
        },
        "noisy": {"marker": "x", "markersize": size, "color": colour, "markeredgewidth": 1.1},
        "failed": {"marker": "|", "markersize": 9.0, "color": colour, "markeredgewidth": 2.0},
        "no value": {"marker": "_", "markersize": 6.0, "color": colour, "markeredgewidth": 2.0},
    }
    return looks[kind]
