"""Sturdiness: whether the verdicts of a record follow from what it measured, and stay without any one pair.

Knows a record's visits, scores, artifacts and axes; not what is made of the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from labkit.bench.pairs import ROLES
from labkit.bench.quiet import Probe
from labkit.bench.statistics import MIN_UNITS
from labkit.bench.verdict import Samples, axis_verdicts, outcome
from labkit.core.hypothesis import Hypothesis
from labkit.core.metrics import METRICS
from labkit.core.records import AxisResult, Record, Verdict
from labkit.lab.measured import Measured, noisy_visits

# What is measured again differs from the record by the last digits of a float at most.
_ROUNDING = 1e-6
_NUMBERS = ("estimate", "low", "high", "n", "p_value", "p_holm")
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

    without: a pair; what each axis is judged in, the pair or the quad, is then left out where it holds that
    one, and the unit stays what it was. Raises LabkitError, KeyError, TypeError or ValueError where the
    record holds no usable numbers.
    """
    claim, pairs = claimed(record), good_pairs(record)
    whole = axis_verdicts({name: _samples(record, name, pairs) for name in claim.margins()}, claim)
    if without is None:
        return whole
    left = {axis.metric: _left(record, axis, pairs, without) for axis in whole}
    return axis_verdicts(left, claim)


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
    """Axes that lose their verdict when some one unit is left out; none where all are sturdy."""
    units = judged_in(record)
    few = [f"{count} {unit}s" for unit, count in units.items() if count <= MIN_UNITS]
    if few:
        yield f"of {few[0]} none can be left out, since {MIN_UNITS} are needed for a verdict"
        return
    flipped: dict[str, set[int]] = {}
    in_quads = {axis.metric for axis in judged(record) if axis.unit == "quad"}
    for pair in good_pairs(record):
        without = verdicts(record, pair)
        for axis in record.axes:
            if axis.verdict not in ("unresolved", without.get(axis.metric)):
                number = pair // 2 if axis.metric in in_quads else pair
                flipped.setdefault(axis.metric, set()).add(number)
    for metric, found in flipped.items():
        unit = "quad" if metric in in_quads else "pair"
        which = f"{unit} {min(found)}" if len(found) == 1 else f"any one of {len(found)} {unit}s"
        yield f"{metric} loses its verdict without {which}"


def judged_in(record: Record) -> Mapping[str, int]:
    """Unit -> how many there are: the pairs, and the quads where an axis is judged in those."""
    quads = [axis.n for axis in judged(record) if axis.unit == "quad"]
    return {"pair": len(good_pairs(record)), **({"quad": min(quads)} if quads else {})}


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


def _left(record: Record, axis: AxisResult, pairs: Sequence[int], without: int) -> Samples:
    """The samples of an axis without the unit that holds a pair; of a score or an artifact all of them."""
    sample = _samples(record, axis.metric, pairs)
    if METRICS[axis.metric].source != "visit":
        return sample
    size = 2 if axis.unit == "quad" else 1
    groups: dict[int, list[int]] = {}
    for place, pair in enumerate(pairs):
        groups.setdefault(pair // size, []).append(place)
    kept = [places for unit, places in groups.items() if unit != without // size and len(places) == size]
    baseline, candidate = (
        [math.exp(math.fsum(math.log(values[place]) for place in places) / size) for places in kept]
        for values in (sample.baseline, sample.candidate)
    )
    # Places that are no neighbours make no quads, so that the unit stays what it was.
    return Samples(candidate, baseline, [2 * number for number in range(len(kept))])


def _samples(record: Record, metric: str, pairs: Sequence[int]) -> Samples:
    source = METRICS[metric].source
    if source == "visit":
        baseline, candidate = (_values(record, role, metric, pairs) for role in ROLES)
        return Samples(candidate, baseline, list(pairs))
    if source == "artifact":
        baseline, candidate = ([record.arm(role).artifact[metric]] for role in ROLES)
        return Samples(candidate, baseline)
    windows = record.quality[_WINDOWS[metric]]
    return Samples(windows, [0.0] * len(windows) if METRICS[metric].scale == "ratio" else ())


def _values(record: Record, role: str, metric: str, pairs: Sequence[int]) -> list[float]:
    by_pair = {v.pair: v.metrics for v in record.visits if v.role == role and v.status == "ok"}
    return [by_pair[pair][metric] for pair in pairs]
