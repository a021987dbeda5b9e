"""The raw samples of a run: a panel per metric with every visit in the order it was made. Rows in, marks out.

Knows visits and how they count; no verdicts. What is no sample is a mark at the edge, and counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
OTHERS: Mapping[Kind, str] = {
    "alone": "without its partner",
    "warm-up": "warm-up",
    "noisy": "noisy, made again",
    "failed": "failed",
    "no value": "without a value",
}
# Warm-ups and noisy visits may lie far off: they must not press the samples that count into a line.
_ROOM, _REACH = 0.15, 0.6
_CROWDED = 60


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
    from matplotlib.ticker import MaxNLocator

    about, size = METRICS[metric], _mark_size(len(found))
    values = [abs(s.value) for s in found if not math.isnan(s.value)]
    scale, unit = byte_scale(max(values, default=0.0)) if about.unit == "bytes" else (1.0, about.unit)
    shown = [replace(sample, value=sample.value / scale) for sample in found]
    limits = _limits(shown)
    axes.set_ylim(*limits)
    axes.set_xlim(0, len(found) + 1)
    axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    far = sum(not limits[0] <= s.value <= limits[1] for s in shown if not math.isnan(s.value))
    off = f" ({far} off the scale, at its edge)" if far else ""
    axes.set_title(f"{about.title}, {unit}{off}", loc="left", fontsize=SMALL_PT, color=GREY, pad=3)
    for place in looks:
        axes.axvline(place, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    _join(axes, shown, size)
    for sample in shown:
        value = limits[0] if math.isnan(sample.value) else min(max(sample.value, limits[0]), limits[1])
        look = _look(COLOURS[sample.role], MARKERS[sample.role], sample.kind, size)
        axes.plot([sample.number], [value], linestyle="", zorder=4, clip_on=False, **look)


def legend_marks(found: Sequence[Sample]) -> list[Line2D]:
    """A mark with a count for whatever is drawn, so that the legend adds up to all visits that were made."""
    from matplotlib.lines import Line2D

    def mark(label: str, colour: str, marker: str, kind: Kind) -> Line2D:
        return Line2D([], [], linestyle="", label=label, **_look(colour, marker, kind, 5.0))

    arms = [
        mark(f"{role} ({count})", COLOURS[role], MARKERS[role], "counted")
        for role in COLOURS
        if (count := sum(s.role == role and s.kind == "counted" for s in found))
    ]
    others = [
        mark(f"{words} ({count})", GREY, "o", kind)
        for kind, words in OTHERS.items()
        if (count := sum(s.kind == kind for s in found))
    ]
    return arms + others


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


def _limits(found: Sequence[Sample]) -> tuple[float, float]:
    """The range of what counts, and of the rest as far as it lies near."""
    values = [s.value for s in found if not math.isnan(s.value)]
    counted = [s.value for s in found if s.kind == "counted"] or values or [0.0, 1.0]
    low, high = min(counted), max(counted)
    reach = _REACH * (high - low)
    near = [value for value in values if low - reach <= value <= high + reach]
    low, high = min([low, *near]), max([high, *near])
    room = _ROOM * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room


def _mark_size(visits: int) -> float:
    """Points; smaller where there are more of them than the width has room for."""
    return max(2.2, min(5.0, 190.0 / max(visits, 1)))


def _join(axes: Axes, found: Sequence[Sample], size: float) -> None:
    """A light line between the two visits of each pair that counts."""
    from matplotlib.collections import LineCollection

    pairs: dict[int, list[tuple[float, float]]] = {}
    for sample in found:
        if sample.kind == "counted":
            pairs.setdefault(sample.pair, []).append((sample.number, sample.value))
    lines = [ends for ends in pairs.values() if len(ends) == 2]
    faint = 1.0 if len(lines) <= _CROWDED else 0.45
    drawn = LineCollection(lines, colors=FADED, linewidths=min(1.0, size / 4), alpha=faint, zorder=2)
    axes.add_collection(drawn, autolim=False)


def _look(colour: str, marker: str, kind: Kind, size: float) -> dict[str, Any]:
    """How a visit is drawn; size in points."""
    plain = {"marker": marker, "markersize": size, "color": colour, "markeredgewidth": 0}
    small = {"marker": marker, "markersize": max(2.2, 0.75 * size), "markerfacecolor": "white"}
    looks: dict[Kind, dict[str, Any]] = {
        "counted": plain,
        "alone": {**plain, "alpha": 0.35},
        "warm-up": {**small, "markeredgecolor": colour, "markeredgewidth": 0.8},
        "noisy": {"marker": "x", "markersize": size, "color": colour, "markeredgewidth": 1.1},
        "failed": {"marker": "|", "markersize": 9.0, "color": colour, "markeredgewidth": 2.0},
        "no value": {"marker": "_", "markersize": 6.0, "color": colour, "markeredgewidth": 2.0},
    }
    return looks[kind]
