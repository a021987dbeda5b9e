"""Sturdiness: whether the verdicts of a record follow from what it measured, and stay without any one pair.

Knows a record's axes and outcome; how they are judged again is in `rejudging`, what else has to follow in
`following`, and what is made of the answer elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from labkit.bench.quiet import Probe
from labkit.bench.statistics import MIN_UNITS
from labkit.bench.verdict import outcome
from labkit.core.errors import LabkitError
from labkit.core.metrics import METRICS
from labkit.core.records import AxisResult, Record
from labkit.lab.deciding.following import unfollowed
from labkit.lab.deciding.rejudging import good_pairs, judged, verdicts
from labkit.lab.measuring.measured import Measured, noisy_visits

# What is measured again differs from the record by the last digits of a float at most.
_ROUNDING = 1e-6
_NUMBERS = ("estimate", "low", "high", "n", "p_value", "p_holm", "alpha", "floor")


def contradictions(record: Record) -> Iterator[str]:
    """What the record says of itself and what it measured does not.

    Axes, verdicts, numbers and outcome come first, then looks, A/A floor, parity and quality.
    """
    try:
        yield from _otherwise(record)
        yield from unfollowed(record)
    except (LabkitError, LookupError, TypeError, ValueError, OverflowError) as error:
        yield f"numbers that carry the verdicts are needed, got {' '.join(str(error).split())}"


def _otherwise(record: Record) -> Iterator[str]:
    again = judged(record)
    # A record's claims are in the order of their names, its axes in that of the experiment.
    told, found = (sorted(axes, key=_claim) for axes in (record.axes, again))
    if list(map(_claim, told)) != list(map(_claim, found)):
        yield f"the axes of the hypothesis are {_claims(again)}, and the record has {_claims(record.axes)}"
        return
    for axis, new in zip(told, found, strict=True):
        if axis.verdict != new.verdict:
            yield f"{axis.metric} is {axis.verdict} in the record, and its {_units(axis)} say {new.verdict}"
        else:
            yield from _other_numbers(axis, new)
    ended = outcome(again) if good_pairs(record) else "failed"
    if record.outcome != ended:
        yield f"the outcome is {record.outcome} in the record, and its axes say {ended}"


def _claim(axis: AxisResult) -> tuple[str, str, float, str]:
    return axis.metric, axis.goal, axis.margin, axis.scale


def noises(record: Record) -> tuple[str, ...]:
    """What was not quiet, as phrases: what the record says itself, then its standing probes and visits."""
    standing = tuple(Probe(**probe) for probe in record.quiet.get("standing", ()))
    measured = Measured(list(record.visits), standing=standing)
    told = [] if record.quiet.get("quiet") is True else _told(record)
    return tuple(dict.fromkeys((*told, *noisy_visits(measured), *_unquiet_visits(record))))


def weaknesses(record: Record) -> Iterator[str]:
    """Axes that lose their verdict when some one pair is left out; none where all are sturdy."""
    pairs = good_pairs(record)
    if len(pairs) <= MIN_UNITS:
        yield f"of {len(pairs)} pairs none can be left out, since {MIN_UNITS} are needed for a verdict"
        return
    flipped: dict[str, list[int]] = {}
    for pair in pairs:
        without = verdicts(record, pair)
        for axis in record.axes:
            if axis.verdict not in ("unresolved", without.get(axis.metric)):
                flipped.setdefault(axis.metric, []).append(pair)
    for metric, found in flipped.items():
        which = f"pair {found[0]}" if len(found) == 1 else f"any one of {len(found)} pairs"
        yield f"{metric} loses its verdict without {which}"


def _claims(axes: Sequence[AxisResult]) -> str:
    return ", ".join(f"{axis.goal} {axis.metric} {axis.margin:g}" for axis in axes) or "none"


def _units(axis: AxisResult) -> str:
    source = METRICS[axis.metric].source
    return {"visit": "visits", "score": "windows", "artifact": "artifacts"}[source]


def _other_numbers(axis: AxisResult, again: AxisResult) -> Iterator[str]:
    for name in _NUMBERS:
        told, found = getattr(axis, name), getattr(again, name)
        if not math.isclose(told, found, rel_tol=_ROUNDING, abs_tol=_ROUNDING * _ROUNDING):
            yield (
                f"{name} of {axis.metric} is {told:.6g} in the record, and its {_units(axis)} say {found:.6g}"
            )


def _told(record: Record) -> list[str]:
    return [str(reason) for reason in record.quiet.get("reasons", ())] or ["its probes say so"]


def _unquiet_visits(record: Record) -> Iterator[str]:
    """Visits that are marked and name no probe."""
    measuring = [visit for visit in record.visits if visit.status == "ok"]
    marked = [v for v in measuring if v.quiet.get("quiet") is not True and not v.quiet.get("failed")]
    if marked:
        yield f"{len(marked)} of {len(measuring)} visits not marked as quiet"
