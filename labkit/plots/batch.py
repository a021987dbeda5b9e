"""The picture of a batch over time: what every request did, the rows, and the KV bytes. Frames in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit.core.errors import NoRecords, RecordInvalid
from labkit.plots.amounts import byte_scale, digits
from labkit.plots.style import (
    BLUE,
    FADED,
    GREY,
    INK,
    ORANGE,
    SMALL_PT,
    TEXT_PT,
    VERMILION,
    WIDTH_IN,
    house_style,
)

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[Any, Any]

MOST = 200
# Inches of a request's line: as much as is legible where there are few, as little as is visible of many.
LINE_IN, THIN_IN, BARS_IN = 0.32, 0.05, 7.0
ROWS_IN, BYTES_IN, FRAME_IN = 1.15, 1.35, 1.35
# Ticks and the words at the right are left out of lines that are closer than this.
_WORDS_IN = 0.16
_TALL = 0.66
_BEYOND = 1.01
# A kind of stretch is in the legend if one is as long as this part of the picture.
_SEEN = 0.002


@dataclass(frozen=True, slots=True)
class _Look:
    """How a stretch is drawn. height: of a request's line. hatch tells it apart where colours do not."""

    words: str
    face: str
    edge: str
    height: float
    hatch: str = ""
    width: float = 0.0


LOOKS: Mapping[str, _Look] = {
    "waiting": _Look("waits for a row", "none", GREY, 0.34, width=0.9),
    "prefill": _Look("prefill", ORANGE, "white", _TALL, width=0.6),
    "decode": _Look("decode steps", BLUE, BLUE, _TALL, width=0.2),
    "paused": _Look("others have the device", FADED, FADED, 0.12),
    "held back": _Look("held back, not read", "white", VERMILION, 0.5, hatch="/////", width=0.9),
}
_REFUSED = "refused"
SHADED: Mapping[str, Any] = {"color": BLUE, "alpha": 0.35, "linewidth": 0}
LINE: Mapping[str, Any] = {"color": INK, "linewidth": 1.4}


def timeline_figure(
    spans: pandas.DataFrame,
    units: pandas.DataFrame,
    *,
    cap: int | None = None,
    budget_bytes: int | None = None,
    title: str = "",
    idle_cut: bool = False,
) -> Figure:
    """A line per request, below it the rows of each step, and where bytes are known those of the caches.

    spans, units: of `labkit.schedule.timeline`. cap, budget_bytes: drawn where they are given. idle_cut: the
    axis says that time in which nothing ran was left out. Raise NoRecords without a request, RecordInvalid
    for more than 200.
    """
    if not len(spans):
        raise NoRecords("requests were needed for a picture", next_step="run a batch, then batch.outcome()")
    requests = len(set(spans["place"]))
    if requests > MOST:
        step = "draw an outcome with fewer, or outcome.summary()"
        raise RecordInvalid(f"at most {MOST} requests fit a picture", got=requests, next_step=step)
    rows, work = spans.to_dict("records"), units.to_dict("records")
    with house_style():
        return _Timeline(rows, work, cap, budget_bytes).draw(title, idle_cut=idle_cut)


@dataclass(frozen=True, slots=True)
class _Timeline:
    spans: list[Row]
    units: list[Row]
    cap: int | None
    budget_bytes: int | None

    def draw(self, title: str, *, idle_cut: bool) -> Figure:
        from matplotlib.figure import Figure

        heights = [self._bars_in, ROWS_IN, *([BYTES_IN] if self._bytes_known else [])]
        figure = Figure(figsize=(WIDTH_IN, sum(heights) + FRAME_IN), layout="constrained")
        panels = figure.subplots(len(heights), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
        self._requests(panels[0])
        self._rows(panels[1])
        if self._bytes_known:
            self._bytes(panels[2])
        panels[-1].set_xlabel("time, s" + (", without the time in which nothing ran" if idle_cut else ""))
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=TEXT_PT, fontweight="bold")
        panels[-1].set_xlim(*self._ends)
        figure.align_ylabels(panels)
        return figure

    @property
    def _firsts(self) -> list[Row]:
        """One span of each request, in the order of their places."""
        found = {row["place"]: row for row in reversed(self.spans)}
        return [found[place] for place in sorted(found)]

    @property
    def _line_in(self) -> float:
        return max(THIN_IN, min(LINE_IN, BARS_IN / len(self._firsts)))

    @property
    def _bars_in(self) -> float:
        return max(0.6, self._line_in * len(self._firsts))

    @property
    def _bytes_known(self) -> bool:
        return any(row["kv_bytes"] or row["reserved_bytes"] for row in self.units)

    @property
    def _ends(self) -> tuple[float, float]:
        starts = [row["start_s"] for row in (*self.spans, *self.units)]
        ends = [row["end_s"] for row in (*self.spans, *self.units)]
        room = 0.01 * (max(ends) - min(starts)) or 0.5
        return min(starts) - room, max(ends) + room

    def _requests(self, axes: Axes) -> None:
        for kind, look in LOOKS.items():
            self._stretches(axes, kind, look)
        for row in self.spans:
            if row["kind"] == _REFUSED:
                axes.plot([row["start_s"]], [row["place"]], "x", color=VERMILION, markeredgewidth=1.8)
        axes.set_ylim(len(self._firsts) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.tick_params(axis="x", labelbottom=False)
        self._names(axes)
        marks = self._legend()
        axes.legend(
            handles=marks,
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=len(marks) if len(marks) <= 5 else 3,
            fontsize=SMALL_PT,
            frameon=False,
            handlelength=1.4,
            columnspacing=1.2,
            borderaxespad=0.1,
        )

    def _stretches(self, axes: Axes, kind: str, look: _Look) -> None:
        places: dict[int, list[tuple[float, float]]] = {}
        for row in self.spans:
            if row["kind"] == kind:
                places.setdefault(row["place"], []).append((row["start_s"], row["end_s"] - row["start_s"]))
        # Edges of thin lines would fill them.
        drawn: dict[str, Any] = _drawn(look) | {"linewidth": look.width * min(1.0, self._line_in / _WORDS_IN)}
        for place, found in places.items():
            axes.broken_barh(found, (place - look.height / 2, look.height), zorder=3, **drawn)

    def _names(self, axes: Axes) -> None:
        """Ids at the left; tokens and TTFT at the right where the lines are tall enough."""
        firsts = self._firsts
        every = max(1, round(_WORDS_IN / self._line_in))
        named = firsts[::every]
        labels = [
            f"{row['id']} ({row['client']})" if row["client"] and every == 1 else row["id"] for row in named
        ]
        axes.set_yticks([row["place"] for row in named], labels)
        right = axes.get_yaxis_transform()
        for row in named if every == 1 else []:
            style = {"transform": right, "va": "center", "fontsize": SMALL_PT, "color": GREY}
            axes.text(_BEYOND, row["place"], _result(row), **style)

    def _legend(self) -> list[Any]:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        start_s, end_s = self._ends
        long = [r for r in self.spans if r["end_s"] - r["start_s"] > _SEEN * (end_s - start_s)]
        kinds = {row["kind"] for row in self.spans if row["kind"] == _REFUSED or row in long}
        marks: list[Any] = [
            Patch(label=look.words, **_drawn(look)) for kind, look in LOOKS.items() if kind in kinds
        ]
        if _REFUSED in kinds:
            mark = {"marker": "x", "linestyle": "", "color": VERMILION, "markeredgewidth": 1.8}
            marks.append(Line2D([], [], label="refused", **mark))
        return marks

    def _rows(self, axes: Axes) -> None:
        """Shaded: rows that a decode step serves. Line: rows that have a place."""
        from matplotlib.ticker import MaxNLocator

        served = [row["served"] if row["kind"] == "decode" else 0 for row in self.units]
        axes.fill_between(*self._over_time(served), step="post", **SHADED)
        axes.step(*self._over_time([row["running"] for row in self.units]), where="post", **LINE)
        most = max([row["running"] for row in self.units] + [self.cap or 1])
        if self.cap is not None:
            _limit(axes, self.cap, f"cap {self.cap}")
        axes.set_ylim(0, most * 1.22)
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.set_ylabel("rows")
        _title(axes, "line: rows that have a place; shaded: rows that a decode step serves")

    def _bytes(self, axes: Axes) -> None:
        held, reserved = ([row[name] for row in self.units] for name in ("kv_bytes", "reserved_bytes"))
        most = max(self.budget_bytes or 0, *held, *reserved)
        size, unit = byte_scale(most)
        axes.fill_between(*self._over_time([value / size for value in held]), step="post", **SHADED)
        words = "shaded: held by the caches"
        if any(reserved):
            axes.step(*self._over_time([value / size for value in reserved]), where="post", **LINE)
            words += "; line: reserved, what they may grow to"
        if self.budget_bytes is not None:
            _limit(axes, self.budget_bytes / size, f"budget {digits(self.budget_bytes / size)} {unit}")
        axes.set_ylim(0, most / size * 1.22)
        axes.set_ylabel(f"KV, {unit}")
        _title(axes, words)

    def _over_time(self, values: Sequence[float]) -> tuple[list[float], list[float]]:
        """Steps of the units' values; 0 after the last, and between two where no request has a place."""
        times, found = list[float](), list[float]()
        for early, late, value in zip(self.units, [*self.units[1:], None], values, strict=True):
            times.append(early["start_s"])
            found.append(value)
            if late is None or not self._held(early["end_s"], late["start_s"]):
                times.append(early["end_s"])
                found.append(0.0)
        return times, found

    def _held(self, start_s: float, end_s: float) -> bool:
        """Whether a request has a place from one time to another."""
        return end_s <= start_s or any(first <= start_s and end_s <= last for first, last in self._stays)

    @property
    def _stays(self) -> list[tuple[float, float]]:
        """From the first work of each request to its last."""
        places: dict[int, list[Row]] = {}
        for row in self.spans:
            if row["units"]:
                places.setdefault(row["place"], []).append(row)
        return [(min(r["start_s"] for r in rows), max(r["end_s"] for r in rows)) for rows in places.values()]


def _drawn(look: _Look) -> dict[str, Any]:
    return {
        "facecolor": look.face,
        "edgecolor": look.edge,
        "linewidth": look.width,
        "hatch": look.hatch or None,
    }


def _limit(axes: Axes, at: float, words: str) -> None:
    axes.axhline(at, color=GREY, linewidth=1.1, linestyle=(0, (4, 3)))
    style = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": SMALL_PT, "color": GREY}
    axes.text(_BEYOND, at, words, **style)


def _title(axes: Axes, words: str) -> None:
    axes.set_title(words, loc="left", fontsize=SMALL_PT, color=GREY, pad=3)


def _result(row: Row) -> str:
    if not row["tokens"]:
        return ""
    return f"{row['tokens']} tokens, first after {digits(row['ttft_s'], 2)} s"
