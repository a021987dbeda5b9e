"""Verdicts judged again: at the look and with the floor of the record, and without any one pair."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labkit.bench.sequential import ONE_LOOK, Look, look_alpha
from labkit.bench.statistics import hodges_lehmann, walsh_interval
from labkit.core.errors import LabkitError
from labkit.core.metrics import METRICS
from labkit.core.records import AxisResult, Record, VisitResult
from labkit.lab.deciding.promotion import promote
from labkit.lab.deciding.rejudging import judged, judged_at, look_of, planned
from labkit.lab.deciding.sturdiness import contradictions, noises, weaknesses
from labkit.store.decisions import read_recipes
from labkit.store.write import write_record
from tests.unit.decided_lab import (
    EXPERIMENT,
    NAME,
    TODAY,
    open_lab,
    record_of,
    refusal,
    rejudged,
    unquiet,
)
from tests.unit.sample_records import SLUG

CLAIM = 'improves={"kv_bytes": 0.4},\n               holds={"decode_tps": 0.2, "kl_mean_nats": 0.001}'
OTHER = 'improves={{"decode_tps": {!r}}}, holds={{"kl_mean_nats": 0.001}}'


pytestmark = pytest.mark.usefixtures("sample_code")


def decoding(root: Path, ratios: list[float], margin: float = 0.01) -> Record:
    """A record that claims decode by a margin, with a ratio for each pair."""

    def visit(v: VisitResult) -> VisitResult:
        decode = 100.0 * ratios[v.pair] if v.role == "candidate" and v.pair >= 0 else 100.0
        return replace(v, metrics={**v.metrics, "decode_tps": decode})

    record = record_of(open_lab(root), pairs=len(ratios))
    claims = {"improves": {"decode_tps": margin}, "holds": {"kl_mean_nats": 0.001}}
    changed = replace(record, visits=tuple(map(visit, record.visits)))
    record = rejudged(replace(changed, experiment={**record.experiment, **claims}))
    assert CLAIM in EXPERIMENT
    source = open_lab(root, EXPERIMENT.replace(CLAIM, OTHER.format(margin)))
    return replace(
        record, experiment={**record.experiment, "source_hash": record_of(source).experiment["source_hash"]}
    )


def drifting(pairs: int) -> list[float]:
    """Ratios that grow, so that each pair is beyond all before it."""
    return [1.10 + 0.01 * pair for pair in range(pairs)]


def decode(axes: tuple[AxisResult, ...]) -> AxisResult:
    return next(axis for axis in axes if axis.metric == "decode_tps")


def margin_inside(low: float) -> float:
    # A millionth inside the interval: far beyond rounding, far below what any unit moves it by.
    return low * (1 - 1e-6) - 1


@pytest.mark.parametrize("order", [1, -1])
def test_every_pair_is_left_out_once(order: int, tmp_path: Path) -> None:
    ratios = drifting(10)[::order]
    low = decode(judged(decoding(tmp_path, ratios))).low
    weak = " ".join(weaknesses(decoding(tmp_path, ratios, margin_inside(low))))
    assert weak.startswith("decode_tps loses its verdict without")


def test_of_eight_pairs_none_can_be_left_out(tmp_path: Path) -> None:
    record = decoding(tmp_path, drifting(8))
    assert list(weaknesses(record)) == ["of 8 pairs none can be left out, since 8 are needed for a verdict"]
    write_record(unquiet(record), tmp_path)
    again = "labkit run experiments/null-ab.py --pairs 12 on a quiet machine (labkit doctor)"
    assert again in refusal(tmp_path)


def test_a_pair_is_left_out_and_the_others_keep_their_order(tmp_path: Path) -> None:
    record, d = decoding(tmp_path, drifting(18)), np.log(drifting(18))
    axis = decode(judged(record, without=5))
    expected = np.exp(walsh_interval(np.delete(d, 5)))
    assert (axis.unit, axis.n) == ("pair", 17)
    assert (axis.low, axis.high) == (pytest.approx(expected[0]), pytest.approx(expected[1]))
    assert list(weaknesses(record)) == []


def test_a_verdict_that_hangs_on_one_pair_is_told(tmp_path: Path) -> None:
    ratios = [1.2, 1.21, 1.19, 1.2, 1.22, 1.18, 1.2, 1.25, 1.5]
    record = decoding(tmp_path, ratios)
    whole = decode(judged(record)).low
    least = min(decode(judged(record, without=pair)).low for pair in range(9))
    assert least < whole
    (weak,) = weaknesses(decoding(tmp_path, ratios, (least + whole) / 2 - 1))
    assert weak.startswith("decode_tps loses its verdict without ") and "pair" in weak


def test_sturdy_pairs_are_told_with_the_promotion(tmp_path: Path) -> None:
    write_record(unquiet(decoding(tmp_path, drifting(18))), tmp_path)
    promote(NAME, why="x", root=tmp_path, today=TODAY, machine=SLUG)
    (condition,) = read_recipes(tmp_path)[0].conditions
    assert condition.endswith("every verdict stays with any one of the 18 pairs left out")


@pytest.mark.parametrize("status", ["failed", "noisy"])
def test_a_visit_that_failed_or_was_made_again_does_not_count(status: Any, tmp_path: Path) -> None:
    record = decoding(tmp_path, drifting(19))
    gone = tuple(
        replace(v, status=status) if v.pair == 1 and v.role == "baseline" else v for v in record.visits
    )
    found = hodges_lehmann(np.delete(np.log(drifting(19)), 1))
    axis = decode(judged(replace(record, visits=gone)))
    assert (axis.unit, axis.n, axis.estimate) == ("pair", 18, pytest.approx(np.exp(found)))


def test_a_visit_made_again_counts_with_its_new_value(tmp_path: Path) -> None:
    record = decoding(tmp_path, drifting(10))
    first = next(v for v in record.visits if v.pair == 0 and v.role == "candidate")
    noisy = replace(first, status="noisy", metrics={**first.metrics, "decode_tps": 1.0})
    for visits in ((noisy, *record.visits), (*record.visits, noisy)):
        assert judged(replace(record, visits=visits)) == judged(record)


def looked_at(record: Record, pairs: int, looks: int, taken: int) -> Record:
    """The record as one of a run planned with so many looks, of which some were taken."""
    experiment = {**record.experiment, "pairs": pairs, "looks": looks}
    good = len({v.pair for v in record.visits if v.pair >= 0})
    found = tuple({"pairs": good, "alpha": 0.05, "verdicts": {}} for _ in range(taken))
    return replace(record, experiment=experiment, looks=found)


def told(record: Record) -> Record:
    """The record as it would tell of its looks, each after the pairs that were planned."""
    due = planned(record)
    looks = tuple({**look, "pairs": pairs} for look, pairs in zip(record.looks, due, strict=False))
    record, found = replace(record, looks=looks), list[dict[str, Any]]()
    for number, look in enumerate(looks):
        axes = [a for a in judged_at(record, number) if METRICS[a.metric].source == "visit"]
        verdicts, last = {a.metric: a.verdict for a in axes}, number == len(looks) - 1
        seen = {"planned": due[number], "alpha": axes[0].alpha, "verdicts": verdicts, "stopped": last}
        found.append({**look, **seen})
    return rejudged(replace(record, looks=tuple(found)))


def test_a_record_is_judged_at_the_level_of_its_last_look(tmp_path: Path) -> None:
    record = decoding(tmp_path, drifting(10))
    early, late = looked_at(record, 20, 2, 1), looked_at(record, 10, 1, 1)
    assert (look_of(early), look_of(late), look_of(record)) == (Look((10, 20), 0), ONE_LOOK, ONE_LOOK)
    axis, alone = decode(judged(early)), decode(judged(late))
    assert axis.alpha == look_alpha((10, 20), 0)
    assert axis.high - axis.low > alone.high - alone.low
    assert decode(judged(early, without=3)).alpha == axis.alpha


def test_where_no_look_was_taken_the_next_one_counts(tmp_path: Path) -> None:
    record = decoding(tmp_path, drifting(10))
    assert look_of(looked_at(record, 32, 4, 0)) == Look((8, 16, 24, 32), 1)
    assert look_of(looked_at(record, 16, 2, 0)) == Look((8, 16), 1)


def test_more_looks_than_planned_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LabkitError, match="rising numbers of pairs"):
        judged(looked_at(decoding(tmp_path, drifting(10)), 16, 2, 3))


def test_a_record_that_stopped_elsewhere_than_it_says_contradicts_itself(tmp_path: Path) -> None:
    record = told(looked_at(decoding(tmp_path, drifting(10)), 20, 2, 1))
    assert list(contradictions(record)) == []
    other = replace(record, looks=({**record.looks[0], "pairs": 20},))
    assert "the last look is after 20 pairs in the record, and 10 are good" in list(contradictions(other))
    # The verdicts of one look do not pass for those of another.
    (wider, *_) = contradictions(replace(record, looks=record.looks * 2))
    assert "decode_tps is" in wider


def test_the_floor_of_the_record_counts(tmp_path: Path) -> None:
    record = decoding(tmp_path, drifting(10), margin=0.03)
    spread = {"estimate": 0.3, "low": 0.2, "high": 0.4, "floor": math.expm1(0.4)}
    control = {"run_id": "x", "started_at": "", "pairs": 8, "metrics": {"decode_tps": spread}}
    floored = replace(record, floor=control)
    assert (decode(judged(record)).verdict, decode(judged(floored)).verdict) == ("better", "unresolved")
    assert decode(judged(floored)).floor == pytest.approx(math.expm1(0.4))
    assert any("decode_tps is better in the record" in text for text in contradictions(floored))


def test_quiet_is_what_says_so(tmp_path: Path) -> None:
    record = record_of(open_lab(tmp_path))
    assert noises(record) == ()
    assert noises(replace(record, quiet={})) == ("its probes say so",)
    unmarked = tuple(replace(visit, quiet={}) for visit in record.visits)
    assert noises(replace(record, visits=unmarked)) == ("20 of 20 visits not marked as quiet",)


@pytest.mark.parametrize(("without", "stretches"), [(0, (7, 8)), (7, (7, 8)), (8, (8, 7)), (15, (8, 7))])
def test_a_pair_is_left_out_of_the_stretch_that_it_lies_in(
    without: int, stretches: tuple[int, ...], tmp_path: Path
) -> None:
    """Noise that differs between the stretches tells how they are ranked."""
    ratios = [1.1 + 0.01 * n for n in range(8)] + [1.02 + 0.001 * n for n in range(8)]
    record = looked_at(decoding(tmp_path, ratios), 16, 2, 2)
    look = replace(look_of(record), left_out=None)
    assert look == Look((8, 16), 1)
    expected = np.exp(walsh_interval(np.delete(np.log(ratios), without), 1 - look.alpha, stretches))
    axis = decode(judged(record, without=without))
    assert (axis.low, axis.high) == (pytest.approx(expected[0]), pytest.approx(expected[1]))


def test_the_order_of_the_axes_is_no_contradiction(tmp_path: Path) -> None:
    """A file names its claims in any order, and a record's JSON sorts them."""
    record = decoding(tmp_path, [1.1] * 12)
    turned = replace(record, axes=tuple(reversed(record.axes)))
    assert list(contradictions(record)) == list(contradictions(turned)) == []
