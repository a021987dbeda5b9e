"""Sturdiness: whether the verdicts of a record follow from its visits, and stay with any one pair left out.

Knows a record's visits and axes; not whether the machine was quiet nor what is made of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from labkit.bench.pairs import ROLES
from labkit.bench.statistics import MIN_UNITS, holm
from labkit.bench.verdict import ALPHA, Samples, axis_verdicts
from labkit.core.hypothesis import Hypothesis
from labkit.core.metrics import METRICS
from labkit.core.records import AxisResult, Record, Verdict


def good_pairs(record: Record) -> tuple[int, ...]:
    """The pairs with a good visit on both arms."""
    good = ({v.pair for v in record.visits if v.role == r and v.status == "ok"} for r in ROLES)
    return tuple(sorted(set.intersection(*good)))


def verdicts(record: Record, without: int | None = None) -> Mapping[str, Verdict]:
    """Metric -> verdict, judged again from the visits. without: the pair that is left out.

    Axes of scores and artifacts keep the p values of the record; all tested axes are one Holm family, as in
    the run. Raises LabkitError or KeyError where the visits hold no usable numbers.
    """
    pairs = [pair for pair in good_pairs(record) if pair != without]
    judged = [_judged(record, axis, pairs) for axis in record.axes]
    tested = [axis for axis in judged if METRICS[axis.metric].source != "artifact"]
    adjusted = dict(zip((a.metric for a in tested), holm([a.p_value for a in tested]), strict=True))
    return {a.metric: "unresolved" if adjusted.get(a.metric, 0) > ALPHA else a.verdict for a in judged}


def contradictions(record: Record) -> Iterator[str]:
    """Axes whose verdict does not follow from the record's own visits."""
    again = verdicts(record)
    for axis in record.axes:
        if again[axis.metric] != axis.verdict:
            yield f"{axis.metric} is {axis.verdict} in the record, and its visits say {again[axis.metric]}"


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
            if axis.verdict not in ("unresolved", without[axis.metric]):
                flipped.setdefault(axis.metric, []).append(pair)
    for metric, found in flipped.items():
        which = f"pair {found[0]}" if len(found) == 1 else f"any one of {len(found)} pairs"
        yield f"{metric} loses its verdict without {which}"


def _judged(record: Record, axis: AxisResult, pairs: list[int]) -> AxisResult:
    """An axis of visits judged anew, as if it were alone; any other as it stands."""
    if METRICS[axis.metric].source != "visit":
        return axis
    claim = Hypothesis("", **{axis.goal: {axis.metric: axis.margin}})
    (again,) = axis_verdicts({axis.metric: _samples(record, axis.metric, pairs)}, claim)
    return again


def _samples(record: Record, metric: str, pairs: list[int]) -> Samples:
    baseline, candidate = (_values(record, role, metric, pairs) for role in ROLES)
    return Samples(candidate, baseline, pairs)


def _values(record: Record, role: str, metric: str, pairs: list[int]) -> list[float]:
    by_pair = {v.pair: v.metrics for v in record.visits if v.role == role and v.status == "ok"}
    return [by_pair[pair][metric] for pair in pairs]
