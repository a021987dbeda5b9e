"""Timeline: an outcome as two frames, what every request did when, and what ran. Knows no pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from labkit.schedule.outcome import Outcome, Timing, Unit
from labkit.schedule.queue import WorkKind

if TYPE_CHECKING:
    import pandas

SpanKind = Literal["waiting", "prefill", "decode", "paused", "held back", "refused"]
SPAN_COLUMNS = (
    *("place", "id", "client", "tokens", "ttft_s"),
    *("kind", "start_s", "end_s", "units"),
)
UNIT_COLUMNS = ("kind", "start_s", "end_s", "served", "running", "reserved_bytes", "kv_bytes")


def span_frame(outcome: Outcome) -> pandas.DataFrame:
    """One row per stretch of a request's time, with SPAN_COLUMNS; requests in the order of their arrival.

    place: the request's number, from 0. kind: `waiting` for a row; `prefill`, one unit of it; `decode`, units
    that follow each other; `paused` where others had the device in between; `held back` where rows decoded
    without it; `refused`, a moment. units: of work. One that has not ended begins with its first unit.
    """
    import pandas

    rows: list[dict[str, Any]] = []
    for place, request in enumerate(_requests(outcome)):
        ttft_s = math.nan if request.ttft_s is None else request.ttft_s
        tokens = len(request.token_s)
        about = {"place": place, "id": request.id, "client": request.client}
        about |= {"tokens": tokens, "ttft_s": ttft_s}
        rows += [about | asdict(span) for span in _spans(request, outcome.units)]
    return pandas.DataFrame(rows, columns=list(SPAN_COLUMNS))


def unit_frame(outcome: Outcome) -> pandas.DataFrame:
    """One row per unit of work, with UNIT_COLUMNS. served, running: numbers of rows."""
    import pandas

    rows = [
        (u.kind, u.start_s, u.start_s + u.seconds, len(u.ids), u.running, u.reserved_bytes, u.kv_bytes)
        for u in outcome.units
    ]
    return pandas.DataFrame(rows, columns=list(UNIT_COLUMNS))


def without_idle(outcome: Outcome, most_s: float) -> Outcome:
    """The outcome as if no stretch in which nothing ran had taken longer than `most_s`.

    A batch that is turned by hand idles while its reader thinks.
    """
    cuts = [
        (early.start_s + early.seconds + most_s, late.start_s)
        for early, late in pairwise(outcome.units)
        if late.start_s - early.start_s - early.seconds > most_s
    ]

    def moved(at_s: float) -> float:
        return at_s - sum(min(at_s, end) - begin for begin, end in cuts if at_s > begin)

    units = tuple(replace(unit, start_s=moved(unit.start_s)) for unit in outcome.units)
    return replace(outcome, timings=tuple(_moved(t, moved) for t in outcome.timings), units=units)


def _moved(timing: Timing, moved: Callable[[float], float]) -> Timing:
    admitted = None if timing.admitted_s is None else moved(timing.admitted_s)
    tokens = tuple(map(moved, timing.token_s))
    return replace(timing, arrival_s=moved(timing.arrival_s), admitted_s=admitted, token_s=tokens)


@dataclass(frozen=True, slots=True)
class _Span:
    kind: SpanKind
    start_s: float
    end_s: float
    units: int = 0


@dataclass(frozen=True, slots=True)
class _Served:
    """Units that follow each other. first, last: their numbers."""

    kind: WorkKind
    first: int
    last: int


def _requests(outcome: Outcome) -> list[Timing]:
    """One for each id, the oldest first; of equal arrivals the one that was served first.

    One that was run again is told by its first arrival.
    """
    found: dict[str, Timing] = {}
    for timing in outcome.timings:
        known = found.get(timing.id)
        found[timing.id] = timing if known is None else replace(known, token_s=timing.token_s)
    for unit in outcome.units:
        for name in unit.ids:
            if name not in found:
                found[name] = _unended(name, unit.start_s)
    begun = {name: number for number, unit in reversed([*enumerate(outcome.units)]) for name in unit.ids}
    return sorted(found.values(), key=lambda t: (t.arrival_s, begun.get(t.id, math.inf)))


def _unended(name: str, start_s: float) -> Timing:
    return Timing(name, "", start_s, start_s)


def _spans(request: Timing, units: Sequence[Unit]) -> Iterator[_Span]:
    if request.refused:
        yield _Span("refused", request.arrival_s, request.arrival_s)
        return
    served = _served(request.id, units)
    begun = units[served[0].first].start_s if served else _end(units, len(units) - 1)
    admitted = begun if request.admitted_s is None else request.admitted_s
    if admitted > request.arrival_s:
        yield _Span("waiting", request.arrival_s, admitted)
    if served and begun > admitted:
        yield _Span("paused", admitted, begun)
    for work in served:
        yield _Span(work.kind, units[work.first].start_s, _end(units, work.last), work.last - work.first + 1)
    for early, late in pairwise(served):
        yield from _gap(early, late, units)


def _served(name: str, units: Sequence[Unit]) -> list[_Served]:
    found: list[_Served] = []
    for number, unit in enumerate(units):
        if name not in unit.ids:
            continue
        before = found[-1] if found else None
        if before and unit.kind == "decode" == before.kind and before.last == number - 1:
            found[-1] = replace(before, last=number)
        else:
            found.append(_Served(unit.kind, number, number))
    return found


def _gap(early: _Served, late: _Served, units: Sequence[Unit]) -> Iterator[_Span]:
    """What lies between two stretches, where it is not a moment."""
    start_s, end_s = _end(units, early.last), units[late.first].start_s
    between = units[early.last + 1 : late.first]
    without = early.kind == "decode" and any(unit.kind == "decode" for unit in between)
    if between:
        yield _Span("held back" if without else "paused", start_s, end_s)


def _end(units: Sequence[Unit], number: int) -> float:
    return units[number].start_s + units[number].seconds if units else 0.0
