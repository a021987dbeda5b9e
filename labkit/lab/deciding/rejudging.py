"""Rejudging: the axes of a record judged again from its visits, windows and artifacts.

Knows the looks and the A/A floor that a record tells of; not whether it told the truth (`sturdiness`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from labkit.bench.floor import biases
from labkit.bench.judges import Samples
from labkit.bench.pairs import ROLES
from labkit.bench.sequential import ONE_LOOK, Look, look_pairs
from labkit.bench.verdict import axis_verdicts
from labkit.core.hypothesis import Hypothesis
from labkit.core.metrics import METRICS
from labkit.core.records import AxisResult, Record, Verdict
from labkit.lab.measuring.floor import Floor

# metric of a score -> its values per window in the record's quality.
WINDOWS = {
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
    pair that is left out of its own stretch between two looks, at the same level. Raises LabkitError,
    KeyError, TypeError or ValueError where the record holds no usable numbers.
    """
    claim, good, look = claimed(record), good_pairs(record), look_of(record)
    if without is not None:
        look = replace(look, left_out=good.index(without))
    pairs = [pair for pair in good if pair != without]
    samples = {name: _samples(record, name, pairs) for name in claim.margins()}
    return axis_verdicts(samples, claim, look, *floors_of(record, len(good)))


def judged_at(record: Record, number: int) -> tuple[AxisResult, ...]:
    """The axes as they were at a look, counted from 0: on the pairs that were good by then, without scores.

    Text is scored after the last look. Raises as `judged` does.
    """
    claim, look = claimed(record), Look(planned(record), number)
    pairs = good_pairs(record)[: int(record.looks[number]["pairs"])]
    names = [name for name in claim.margins() if METRICS[name].source != "score"]
    samples = {name: _samples(record, name, pairs) for name in names}
    return axis_verdicts(samples, claim, look, *floors_of(record, len(pairs)))


def planned(record: Record) -> tuple[int, ...]:
    """After how many pairs each look was planned. Raises LabkitError where so many cannot be."""
    return look_pairs(int(record.experiment["pairs"]), int(record.experiment.get("looks", 1)))


def look_of(record: Record) -> Look:
    """The look that decided a record: its last; where it tells of none, the next after its pairs."""
    looks = int(record.experiment.get("looks", 1))
    if looks == 1:
        return ONE_LOOK
    due, good = planned(record), len(good_pairs(record))
    following = next((index for index, pairs in enumerate(due) if pairs >= good), looks - 1)
    return Look(due, len(record.looks) - 1 if record.looks else following)


def claimed(record: Record) -> Hypothesis:
    """The hypothesis that a record names."""
    experiment = record.experiment
    return Hypothesis(experiment["statement"], experiment["improves"], experiment["holds"])


def verdicts(record: Record, without: int | None = None) -> Mapping[str, Verdict]:
    """Metric -> verdict, judged again as `judged` does."""
    return {axis.metric: axis.verdict for axis in judged(record, without)}


def floors_of(record: Record, pairs: int) -> tuple[dict[str, float], dict[str, float]]:
    """Metric -> floor after so many pairs, and metric -> bias, of the spreads that the record tells of."""
    if not record.floor:
        return {}, {}
    floor = Floor.from_json(record.floor)
    return floor.at(pairs), biases(floor.spreads)


def _samples(record: Record, metric: str, pairs: Sequence[int]) -> Samples:
    source = METRICS[metric].source
    if source == "visit":
        baseline, candidate = (_values(record, role, metric, pairs) for role in ROLES)
        return Samples(candidate, baseline)
    if source == "artifact":
        baseline, candidate = ([record.arm(role).artifact[metric]] for role in ROLES)
        return Samples(candidate, baseline)
    windows = record.quality[WINDOWS[metric]]
    return Samples(windows, [0.0] * len(windows) if METRICS[metric].scale == "ratio" else ())


def _values(record: Record, role: str, metric: str, pairs: Sequence[int]) -> list[float]:
    by_pair = {v.pair: v.metrics for v in record.visits if v.role == role and v.status == "ok"}
    return [by_pair[pair][metric] for pair in pairs]
