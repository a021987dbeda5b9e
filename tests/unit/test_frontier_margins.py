"""Dominance with margins: golden cases, and where the margins come from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from labkit.core.arm import Arm
from labkit.core.metrics import DEFAULT_MARGINS
from labkit.frontier.advantage import advantage
from labkit.frontier.axis import Registered, axes_for, margin_text
from labkit.frontier.dominance import dominates, judge
from labkit.frontier.points import points
from labkit.frontier.tradeoff import trade_offs
from labkit.frontier.words import beside, phrase
from labkit.store import query
from labkit.store.write import write_record
from tests.unit.frontier_points import GROUP, Interval, point
from tests.unit.sample_records import BLAS, KV8, sample_record

Values = tuple[Interval, Interval, Interval]
OTHER: Values = (100.0, 0.1, 1000.0)

# What `a` has against OTHER: whether it dominates, is dominated, and what is said of it.
GOLDEN: dict[str, tuple[Values, bool, bool, str]] = {
    "the margin itself is no gain": ((103.0, 0.1, 1000.0), False, False, "no different"),
    "just beyond it": ((103.01, 0.1, 1000.0), True, False, "faster"),
    "an interval that reaches into it": (((102.0, 120.0), 0.1, 1000.0), False, False, "no different"),
    "1% of bytes is the margin": ((100.0, 0.1, 990.1), False, False, "no different"),
    "smaller": ((100.0, 0.1, 990.0), True, False, "smaller"),
    "a hundredth of a nat is the margin": ((100.0, 0.0901, 1000.0), False, False, "no different"),
    "a lower KL": ((100.0, 0.0899, 1000.0), True, False, "a lower KL"),
    "faster, and slower only within it": ((97.1, 0.1, 900.0), True, False, "smaller"),
    "smaller for slower": ((97.0, 0.1, 900.0), False, False, "trade-off: smaller for slower"),
    "all three against one": ((50.0, 0.2, 1100.0), False, True, "slower and a higher KL and larger"),
    "two for one": (
        (120.0, 0.2, 900.0),
        False,
        False,
        "trade-off: faster and smaller for a higher KL",
    ),
    "a loss that only the estimate shows": (((60.0, 110.0), 0.1, 900.0), False, False, "smaller"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_dominance(name: str) -> None:
    values, over, under, said = GOLDEN[name]
    a, b = point("a", *values), point("b", *OTHER)
    assert (dominates(a, b), dominates(b, a), beside(a, b)) == (over, under, said)


@pytest.mark.parametrize("factor", [1e-9, 1.0, 1e9])
def test_ratio_axes_know_no_unit(factor: float) -> None:
    a = point("a", (103.1 * factor, 104 * factor), 0.1, 1000.0)
    b = point("b", (99 * factor, 100 * factor), 0.1, 1000.0)
    assert dominates(a, b)
    assert not dominates(b, a)


@pytest.mark.parametrize(
    ("registered", "margin", "stated"),
    [
        ([], 0.03, False),
        ([("holds", 0.1)], 0.1, True),
        ([("holds", 0.1), ("holds", 0.05)], 0.05, True),
        ([("improves", 0.01)], 0.01, True),
        ([("improves", 4.0)], 0.03, False),
        ([("improves", 4.0), ("holds", 0.1)], 0.1, True),
    ],
)
def test_the_smallest_registered_margin_counts_and_a_goal_widens_nothing(
    registered: list[tuple[str, float]], margin: float, stated: bool
) -> None:
    known = [Registered("decode_tps", goal, m) for goal, m in registered]
    known.append(Registered("prefill_tps", "holds", 0.001))
    speed = axes_for("decode_tps", known)[0]
    assert (speed.margin, speed.registered) == (margin, stated)


def test_a_margin_of_a_part_is_none_of_the_sum() -> None:
    size = axes_for("decode_tps", [Registered("kv_bytes", "improves", 0.4)])[2]
    assert (size.margin, size.registered) == (DEFAULT_MARGINS["artifact_bytes"], False)
    assert margin_text(size) == "bytes held 1%*"


def test_margins_come_from_the_records_of_the_group(tmp_path: Path) -> None:
    write_record(sample_record(replace(KV8, holds={"decode_tps": 0.3, "kl_mean_nats": 0.002})), tmp_path)
    write_record(sample_record(BLAS, run_id="blas"), tmp_path)
    found = {p.group.axes[0].parts[0]: p.group.axes for p in points(query.frontier_points(tmp_path))}
    assert [axis.margin for axis in found["decode_tps"]] == [0.3, 0.002, 0.01]
    assert [axis.margin for axis in found["prefill_tps"]] == [0.03, 0.001, 0.01]


def test_a_control_is_no_point(tmp_path: Path) -> None:
    write_record(sample_record(run_id="claim"), tmp_path)
    equal = replace(KV8, name="equal", candidate=Arm("smollm2", prefill_chunk=7))
    write_record(replace(sample_record(equal, run_id="control"), kind="control"), tmp_path)
    assert set(query.frontier_points(tmp_path)["run_id"]) == {"claim"}
    assert set(query.frontier_records(tmp_path)["run_id"]) == {"claim"}


def test_a_trade_off_says_how_much_with_intervals() -> None:
    reference = point("reference", (98.0, 102.0), 0.0, 1000.0)
    small = point("small", (49.0, 51.0), 0.0, 500.0)
    (found,) = trade_offs(judge([reference, small]))
    assert phrase(found) == "size 2x for speed 0.5x [0.48, 0.52] against reference"
    assert [(a.axis.name, a.value) for a in found.given_up()] == [("speed", 0.5)]


def test_an_interval_that_reaches_zero_has_no_highest_ratio() -> None:
    group = replace(GROUP, axes=axes_for("decode_tps"))
    reference, odd = (
        point("reference", (-5.0, 25.0), 0.0, 1000.0, group),
        point("a", 50.0, 0.0, 2000.0, group),
    )
    (found,) = trade_offs(judge([reference, odd]))
    assert found.gained()[0].high == float("inf")
    assert "inf" in phrase(found)


def test_a_ratio_is_never_below_zero() -> None:
    mine, other = point("a", (-5.0, 25.0), 0.0, 1000.0), point("b", 50.0, 0.0, 1000.0)
    found = advantage(mine, other, GROUP.axes[0])
    assert found is not None and (found.low, found.value, found.high) == (0.0, 0.2, 0.5)
