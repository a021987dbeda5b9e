"""Holding: whether a new record still carries what a promotion rested on. Pure, and decides nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from labkit.core.metrics import METRICS
from labkit.core.records import AxisResult, Record
from labkit.lab.deciding.crashes import DROPPED, crashes
from labkit.lab.deciding.objections import axis_line
from labkit.lab.deciding.sturdiness import contradictions, noises, weaknesses


@dataclass(frozen=True, slots=True)
class Holding:
    """state: `holds`, `lost`, or `not settled` where the new record cannot tell. reasons: why not `holds`."""

    state: Literal["holds", "lost", "not settled"]
    reasons: tuple[str, ...] = ()


def holding(promoted: Record, now: Record) -> Holding:
    """Compare the record of a promotion with a newer one of the same experiment file.

    A record that is partial, contradicts itself, lost many visits of an arm, or was measured on a machine
    that was not quiet and whose verdicts hang on single pairs settles nothing, whatever it says.
    """
    unusable = tuple(_unusable(now))
    if unusable:
        return Holding("not settled", unusable)
    lost = (*_lost_axes(promoted, now), *_lost_parity(promoted, now))
    if lost:
        return Holding("lost", lost)
    open_ = (*_open_axes(promoted, now), *_open_parity(promoted, now))
    return Holding("not settled", open_) if open_ else Holding("holds")


def _unusable(now: Record) -> Iterator[str]:
    if now.kind != "experiment":
        yield "a control was measured"
    elif now.outcome == "failed":
        yield "no pair of visits was finished"
    elif now.state != "complete":
        yield "the run is partial"
    else:
        yield from contradictions(now)
        yield from (f"{text}: {DROPPED}" for text in crashes(now))
        noise = "; ".join(noises(now))
        weak = "; ".join(weaknesses(now)) if noise else ""
        if weak:
            yield f"the machine was not quiet ({noise}), and {weak}"


def _lost_axes(promoted: Record, now: Record) -> Iterator[str]:
    found = {axis.metric: axis for axis in now.axes}
    for was in promoted.axes:
        axis = found.get(was.metric)
        if axis is not None and _is_lost(was, axis):
            yield f"{axis_line(axis)}; promoted as {was.verdict}"


def _is_lost(was: AxisResult, now: AxisResult) -> bool:
    """An improvement that no longer comes, a new loss, or an accepted loss that is deeper than it was."""
    if now.verdict == "unresolved":
        return False
    if was.goal == "improves":
        return was.verdict == "better" and now.verdict != "better"
    return now.verdict == "worse" and (was.verdict != "worse" or _is_deeper(was, now))


def _is_deeper(was: AxisResult, now: AxisResult) -> bool:
    """Whether the whole interval lies beyond the earlier one, and beyond the margin from there."""
    if was.scale == "ratio":
        return math.log(now.high) < math.log(was.low) - math.log1p(was.margin)
    if METRICS[was.metric].better == "lower":
        return now.low > was.high + was.margin
    return now.high < was.low - was.margin


def _open_axes(promoted: Record, now: Record) -> Iterator[str]:
    """Axes of which nothing is known now; a loss that was accepted needs no verdict."""
    found = {axis.metric: axis for axis in now.axes}
    for was in promoted.axes:
        axis = found.get(was.metric)
        if axis is None:
            yield f"{METRICS[was.metric].title} was not measured"
        elif axis.verdict == "unresolved" and was.verdict != "worse":
            yield axis_line(axis)


def _lost_parity(promoted: Record, now: Record) -> Iterator[str]:
    for name in _no_longer_equal(promoted, now):
        compared = _compared(now, name)
        if compared and "unavailable" not in compared:
            yield f"the candidate no longer equals {name} bit for bit"


def _open_parity(promoted: Record, now: Record) -> Iterator[str]:
    for name in _no_longer_equal(promoted, now):
        why = _compared(now, name).get("unavailable", "it was not measured")
        yield f"whether the candidate still equals {name} bit for bit is not known: {why}"


def _no_longer_equal(promoted: Record, now: Record) -> list[str]:
    before, after = (r.parity.get("candidate", {}).get("equals", ()) for r in (promoted, now))
    return [name for name in before if name not in after]


def _compared(now: Record, name: str) -> dict[str, object]:
    return now.parity.get("candidate", {}).get("oracles", {}).get(name, {})
