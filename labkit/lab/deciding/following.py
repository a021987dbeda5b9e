"""Following: whether what a record tells beside its axes follows from what it holds.

Knows looks, the A/A floor, parity and quality; whether the axes follow from the samples is in `sturdiness`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from labkit.bench.verdict import decided
from labkit.core.metrics import METRICS
from labkit.core.records import Record
from labkit.lab.deciding.rejudging import WINDOWS, floors_of, good_pairs, judged_at, planned
from labkit.lab.measuring.parity import is_equal
from labkit.plan.values import shown

# What is computed again differs by the last digits of a float at most.
_ROUNDING = 1e-6
# A mean of windows that cancel: by that share of the largest of them.
_CANCELLED = 1e-9


def unfollowed(record: Record) -> Iterator[str]:
    """What a complete record tells otherwise than the rest of it says, as phrases.

    Raises LabkitError, KeyError, TypeError or ValueError where it holds no usable numbers.
    """
    for part in (_looks, _floor, _parity, _quality):
        yield from part(record)


def _looks(record: Record) -> Iterator[str]:
    looks, asked = record.looks, int(record.experiment.get("looks", 1))
    if not looks:
        if asked > 1:
            yield f"{asked} looks were planned, and the record tells of none"
        return
    due, good = planned(record), len(good_pairs(record))
    if len(looks) > len(due):
        yield f"{len(looks)} looks are in the record, and {len(due)} were planned"
        return
    for number in range(len(looks)):
        yield from _other_look(record, number)
    if looks[-1]["pairs"] != good:
        yield f"the last look is after {looks[-1]['pairs']} pairs in the record, and {good} are good"
    if looks[-1].get("stopped") is not True:
        yield "the last look did not stop the run, and the record is complete"


def _other_look(record: Record, number: int) -> Iterator[str]:
    """What a look tells otherwise than the visits that were there by then."""
    look, due = record.looks[number], planned(record)
    axes = judged_at(record, number)
    visited = [axis for axis in axes if METRICS[axis.metric].source == "visit"]
    last = number == len(due) - 1
    again = {
        "planned": due[number],
        "alpha": visited[0].alpha if visited else 0.0,
        "verdicts": {axis.metric: axis.verdict for axis in visited},
        "stopped": last or decided(axes),
    }
    for name, value in again.items():
        told = look.get(name)
        same = _close(told, value) if name == "alpha" else told == value
        if not same:
            yield f"{name} of look {number + 1} is {shown(told)} in the record, and {value} follows"
    failed = any(visit.status == "failed" for visit in record.visits)
    if look["pairs"] > due[number] or (look["pairs"] < due[number] and not failed):
        why = "" if look["pairs"] > due[number] else ", and no visit failed"
        yield f"look {number + 1} is after {look['pairs']} pairs in the record, planned {due[number]}{why}"


def _floor(record: Record) -> Iterator[str]:
    pairs = len(good_pairs(record))
    floors, _ = floors_of(record, pairs)
    for metric, floor in floors.items():
        told = record.floor["metrics"][metric]["floor"]
        if not _close(told, floor):
            yield (
                f"the A/A floor of {metric} is {told:.6g} in the record, "
                f"and its spread says {floor:.6g} at {pairs} pairs"
            )


def _parity(record: Record) -> Iterator[str]:
    """What an arm equals is what its comparisons found; each of those must agree with itself."""
    for role, found in record.parity.items():
        equals = [name for name, compared in found["oracles"].items() if is_equal(compared)]
        if sorted(found["equals"]) != sorted(equals):
            told = ", ".join(found["equals"]) or "nothing"
            yield f"the {role} equals {told} in the record, and its oracles say {', '.join(equals) or 'none'}"
        for name, compared in found["oracles"].items():
            yield from (f"{role} against {name}: {text}" for text in _itself(compared))


def _itself(compared: Mapping[str, Any]) -> Iterator[str]:
    if "tokens" not in compared:
        return
    if compared["tokens_equal"] != (compared["first_token"] is None):
        yield f"tokens_equal is {compared['tokens_equal']}, and first_token {compared['first_token']}"
    if compared["logprobs_equal"] and compared["first_logprobs"] is not None:
        yield f"logprobs_equal is True, and first_logprobs {compared['first_logprobs']}"


def _quality(record: Record) -> Iterator[str]:
    """The summary of the scores against the mean of each window, which all have as many positions."""
    quality = record.quality
    if not quality and record.provenance.get("windows_hash"):
        yield "text was scored by the provenance of the record, and it has no quality"
    for name, kept in WINDOWS.items():
        if name not in quality and kept not in quality:
            continue
        if quality.get(name) is None or not quality.get(kept):
            yield f"{name} and {kept} belong together, and the record has one of them"
            continue
        again = _mean(name, quality[kept])
        if not _close(quality[name], again, _CANCELLED * max(map(abs, quality[kept]))):
            yield f"{name} is {quality[name]:.6g} in the record, and its windows say {again:.6g}"
        if quality.get("windows", len(quality[kept])) != len(quality[kept]):
            yield f"windows is {quality['windows']} in the record, and {kept} has {len(quality[kept])}"
    yield from _largest(quality)


def _largest(quality: Mapping[str, Any]) -> Iterator[str]:
    largest, windows = quality.get("kl_max_nats"), quality.get("window_kl_nats") or ()
    if largest is not None and any(w > largest and not _close(w, largest) for w in windows):
        yield f"kl_max_nats is {largest:.6g} in the record, and a window has {max(windows):.6g} on average"


def _mean(metric: str, windows: Sequence[float]) -> float:
    mean = math.fsum(windows) / len(windows)
    return math.exp(mean) if METRICS[metric].scale == "ratio" else mean


def _close(told: Any, again: float, least: float = 0.0) -> bool:
    return isinstance(told, int | float) and math.isclose(told, again, rel_tol=_ROUNDING, abs_tol=least)
