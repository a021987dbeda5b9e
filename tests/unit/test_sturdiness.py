"""Verdicts judged again without any one unit: the pair, or the quad where the axis was judged in quads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labkit.bench.statistics import hodges_lehmann, quads, walsh_interval
from labkit.core.records import AxisResult, Record, VisitResult
from labkit.lab.promotion import promote
from labkit.lab.sturdiness import judged, judged_in, noises, weaknesses
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
    """Ratios that grow, so that pairs are autocorrelated."""
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


def test_of_eight_quads_none_can_be_left_out(tmp_path: Path) -> None:
    record = decoding(tmp_path, drifting(16))
    assert judged_in(record) == {"pair": 16, "quad": 8}
    assert list(weaknesses(record)) == ["of 8 quads none can be left out, since 8 are needed for a verdict"]
    write_record(unquiet(record), tmp_path)
    again = "labkit run experiments/null-ab.py --pairs 20 on a quiet machine (labkit doctor)"
    assert again in refusal(tmp_path)


def test_what_was_judged_in_quads_is_judged_in_quads_without_one(tmp_path: Path) -> None:
    record = decoding(tmp_path, drifting(18))
    d = np.log(drifting(18))
    axis = decode(judged(record, without=5))
    expected = np.exp(walsh_interval(np.delete(quads(d), 2)))
    assert (axis.n, axis.low, axis.high) == (8, pytest.approx(expected[0]), pytest.approx(expected[1]))
    assert list(weaknesses(record)) == []


def test_a_verdict_that_hangs_on_one_quad_is_told(tmp_path: Path) -> None:
    low = decode(judged(decoding(tmp_path, drifting(18)))).low
    (weak,) = weaknesses(decoding(tmp_path, drifting(18), margin_inside(low)))
    assert weak.startswith("decode_tps loses its verdict without ") and "quad" in weak


def test_sturdy_quads_are_told_with_the_promotion(tmp_path: Path) -> None:
    write_record(unquiet(decoding(tmp_path, drifting(18))), tmp_path)
    promote(NAME, why="x", root=tmp_path, today=TODAY, machine=SLUG)
    (condition,) = read_recipes(tmp_path)[0].conditions
    assert condition.endswith("every verdict stays with any one of the 18 pairs or 9 quads left out")


def test_pairs_keep_their_places_where_one_failed(tmp_path: Path) -> None:
    """A pair that failed leaves half a quad out, and does not move those after it."""
    record = decoding(tmp_path, drifting(19))
    gone = tuple(replace(v, status="failed") if v.pair == 1 else v for v in record.visits)
    places = [pair for pair in range(19) if pair != 1]
    found = quads(np.log([drifting(19)[pair] for pair in places]), places)
    axis = decode(judged(replace(record, visits=gone)))
    assert (axis.unit, axis.n, axis.estimate) == ("quad", 8, pytest.approx(np.exp(hodges_lehmann(found))))


def test_quiet_is_what_says_so(tmp_path: Path) -> None:
    record = record_of(open_lab(tmp_path))
    assert noises(record) == ()
    assert noises(replace(record, quiet={})) == ("its probes say so",)
    unmarked = tuple(replace(visit, quiet={}) for visit in record.visits)
    assert noises(replace(record, visits=unmarked)) == ("20 of 20 visits not marked as quiet",)
