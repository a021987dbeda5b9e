"""Sturdiness: whether the verdicts of a record follow from what it measured, and stay without any one pair.

Knows a record's visits, scores, artifacts, axes, looks and A/A floor; not what is made of the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from labkit.bench.judges import Samples
from labkit.bench.pairs import ROLES
from labkit.bench.quiet import Probe
from labkit.bench.sequential import ONE_LOOK, Look, look_pairs
from labkit.bench.statistics import MIN_UNITS
from labkit.bench.verdict import axis_verdicts, outcome
from labkit.core.hypothesis import Hypothesis
from labkit.core.metrics import METRICS
from labkit.core.records import AxisResult, Record, Verdict
from labkit.lab.measuring.measured import Measured, noisy_visits

# What is measured again differs from the record by the last digits of a float at most.
_ROUNDING = 1e-6
_NUMBERS = ("estimate", "low", "high", "n", "p_value", "p_holm", "alpha", "floor")
# metric of a score -> its values per window in the record's quality.
_WINDOWS = {
    "kl_mean_nats": "window_kl_nats",
    "top1_agreement": "window_top1",
    "ppl_ratio": "window_log_ppl_ratio",
}


def good_pairs(record: Record) -> tuple[int, ...]:
    """The pairs with a good visit on both arms."""
    good = ({v.pair for v in record.visits if v.role == r and v.status == "ok"} for r in ROLES)
    return tuple(sorted(set.intersection(*good)))


def judged(record: Record, without: int | None = None) -> tuple[AxisResult, ...]:
    """The axes of the record's hypothesis, judged again from its visits, windows and artifacts.

    The level is that of the look that the record ended at, and the A/A floor the record's own. without: a
    pair that is left out, at the same level. Raises LabkitError, KeyError, TypeError or ValueError where the
    record holds no usable numbers.
    """
    claim, pairs = claimed(record), [pair for pair in good_pairs(record) if pair != without]
    samples = {name: _samples(record, name, pairs) for name in claim.margins()}
    return axis_verdicts(samples, claim, look_of(record), _floors(record))


def look_of(record: Record) -> Look:
    """The look that decided a record: its last; where it tells of none, the next after its pairs."""
    looks = int(record.experiment.get("looks", 1))
    if looks == 1:
        return ONE_LOOK
    planned, good = look_pairs(int(record.experiment["pairs"]), looks), len(good_pairs(record))
    due = next((index for index, pairs in enumerate(planned) if pairs >= good), looks - 1)
    return Look(planned, len(record.looks) - 1 if record.looks else due)


def claimed(record: Record) -> Hypothesis:
    """The hypothesis that a record names."""
    experiment = record.experiment
    return Hypothesis(experiment["statement"], experiment["improves"], experiment["holds"])


def verdicts(record: Record, without: int | None = None) -> Mapping[str, Verdict]:
    """Metric -> verdict, judged again as `judged` does."""
    return {axis.metric: axis.verdict for axis in judged(record, without)}


def contradictions(record: Record) -> Iterator[str]:
    """What the record says of itself and what it measured does not: axes, verdicts, numbers, outcome."""
    again = judged(record)
    found = [(axis.metric, axis.goal, axis.margin, axis.scale) for axis in record.axes]
    if found != [(axis.metric, axis.goal, axis.margin, axis.scale) for axis in again]:
        yield f"the axes of the hypothesis are {_claims(again)}, and the record has {_claims(record.axes)}"
        return
    for axis, new in zip(record.axes, again, strict=True):
        if axis.verdict != new.verdict:
            yield f"{axis.metric} is {axis.verdict} in the record, and its {_units(axis)} say {new.verdict}"
        else:
            yield from _other_numbers(axis, new)
    yield from _other_pairs(record)
    ended = outcome(again) if good_pairs(record) else "failed"
    if record.outcome != ended:
        yield f"the outcome is {record.outcome} in the record, and its axes say {ended}"


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


def _other_pairs(record: Record) -> Iterator[str]:
    """A last look after another number of pairs than there are."""
    good = len(good_pairs(record))
    if record.state == "complete" and record.looks and record.looks[-1]["pairs"] != good:
        yield f"the last look is after {record.looks[-1]['pairs']} pairs in the record, and {good} are good"


def _told(record: Record) -> list[str]:
    return [str(reason) for reason in record.quiet.get("reasons", ())] or ["its probes say so"]


def _unquiet_visits(record: Record) -> Iterator[str]:
    """Visits that are marked and name no probe."""
    measuring = [visit for visit in record.visits if visit.status == "ok"]
    marked = [v for v in measuring if v.quiet.get("quiet") is not True and not v.quiet.get("failed")]
    if marked:
        yield f"{len(marked)} of {len(measuring)} visits not marked as quiet"


def _floors(record: Record) -> Mapping[str, float]:
    """Metric -> the A/A floor that the record's verdicts rest on; empty where it has none."""
    return {metric: found["floor"] for metric, found in record.floor.get("metrics", {}).items()}


def _samples(record: Record, metric: str, pairs: Sequence[int]) -> Samples:
    source = METRICS[metric].source
    if source == "visit":
        baseline, candidate = (_values(record, role, metric, pairs) for role in ROLES)
        return Samples(candidate, baseline)
    if source == "artifact":
        baseline, candidate = ([record.arm(role).artifact[metric]] for role in ROLES)
        return Samples(candidate, baseline)
    windows = record.quality[_WINDOWS[metric]]
    return Samples(windows, [0.0] * len(windows) if METRICS[metric].scale == "ratio" else ())


def _values(record: Record, role: str, metric: str, pairs: Sequence[int]) -> list[float]:
    by_pair = {v.pair: v.metrics for v in record.visits if v.role == role and v.status == "ok"}
    return [by_pair[pair][metric] for pair in pairs]
