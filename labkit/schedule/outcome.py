"""Outcome: what became of every request of a simulation, and the figures that policies are compared by."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from labkit.schedule.queue import WorkKind

if TYPE_CHECKING:
    from labkit.plots.picture import Picture

PERCENTILES = (50, 95, 99)
# What a picture keeps of a stretch in which nothing ran, as a part of the time in which something did.
_IDLE_KEPT = 0.02


@dataclass(frozen=True, slots=True)
class Timing:
    """One request. admitted_s, token_s: seconds since the start. refused: why it never ran, else empty."""

    id: str
    client: str
    arrival_s: float
    admitted_s: float | None = None
    token_s: tuple[float, ...] = ()
    refused: str = ""

    @property
    def wait_s(self) -> float | None:
        """From arrival to admission."""
        return None if self.admitted_s is None else self.admitted_s - self.arrival_s

    @property
    def ttft_s(self) -> float | None:
        """From arrival to the first token."""
        return self.token_s[0] - self.arrival_s if self.token_s else None

    @property
    def itl_s(self) -> tuple[float, ...]:
        """Between one token and the next."""
        return tuple(late - early for early, late in pairwise(self.token_s))

    @property
    def latency_s(self) -> float | None:
        """From arrival to the last token."""
        return self.token_s[-1] - self.arrival_s if self.token_s else None


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit of work. ids: the requests that it served. running: rows at that time, served or not.

    reserved_bytes, kv_bytes: of all rows, the latter after the unit.
    """

    kind: WorkKind
    start_s: float
    seconds: float
    ids: tuple[str, ...]
    running: int
    reserved_bytes: int
    kv_bytes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """timings: one for each arrival, in its order. units: everything that ran, in its order."""

    policy: str
    timings: tuple[Timing, ...]
    units: tuple[Unit, ...]

    @property
    def seconds(self) -> float:
        """From the first arrival to the last token."""
        first = min((t.arrival_s for t in self.timings), default=0.0)
        return self.units[-1].start_s + self.units[-1].seconds - first if self.units else 0.0

    def summary(self) -> dict[str, Any]:
        """One row of a frame: percentiles in seconds, aggregate tokens/s, the longest wait, the peaks.

        A figure of which there is no sample is NaN.
        """
        tokens = sum(len(t.token_s) for t in self.timings)
        return {
            "policy": self.policy,
            "completed": sum(1 for t in self.timings if t.token_s),
            "refused": sum(1 for t in self.timings if t.refused),
            **_percentiles("ttft", (t.ttft_s for t in self.timings)),
            **_percentiles("itl", (gap for t in self.timings for gap in t.itl_s)),
            **_percentiles("latency", (t.latency_s for t in self.timings)),
            "max_wait_s": max((t.wait_s for t in self.timings if t.wait_s is not None), default=math.nan),
            "aggregate_tps": tokens / self.seconds if self.seconds else math.nan,
            "peak_rows": max((u.running for u in self.units), default=0),
            "peak_kv_bytes": max((u.kv_bytes for u in self.units), default=0),
        }

    def figure(
        self, *, cap: int | None = None, budget_bytes: int | None = None, idle: bool = False
    ) -> Picture:
        """What every request did when, the rows and the KV bytes, drawn.

        cap, budget_bytes: drawn where they are given. idle: with the time in which nothing ran, which is
        left out otherwise.
        """
        from labkit.plots.batch import timeline_figure
        from labkit.plots.picture import Picture
        from labkit.schedule.timeline import span_frame, unit_frame, without_idle

        worked_s = sum(unit.seconds for unit in self.units)
        shown = self if idle else without_idle(self, _IDLE_KEPT * worked_s)
        tokens = sum(len(t.token_s) for t in self.timings)
        title = f"{self.policy}: {len(self.timings)} requests, {tokens} tokens, {worked_s:.2f} s of work"
        frames, cut = (span_frame(shown), unit_frame(shown)), shown.seconds < self.seconds
        drawn = timeline_figure(*frames, cap=cap, budget_bytes=budget_bytes, title=title, idle_cut=cut)
        return Picture(drawn)


def percentile(samples: Iterable[float | None], percent: float) -> float:
    """With linear interpolation between samples, as numpy's default; None is no sample, none at all NaN."""
    ordered = sorted(s for s in samples if s is not None)
    if not ordered:
        return math.nan
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _percentiles(name: str, samples: Iterable[float | None]) -> dict[str, float]:
    held = list(samples)
    return {f"{name}_p{percent}_s": percentile(held, percent) for percent in PERCENTILES}
