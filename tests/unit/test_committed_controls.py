"""The controls that are committed as records: the bench finds what is there, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit.core.records import AxisResult, Record
from labkit.lab.deciding.sturdiness import contradictions
from labkit.store.read import read_records

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def controls() -> tuple[Record, ...]:
    loaded = read_records(ROOT)
    assert loaded.damaged == ()
    return tuple(r for r in loaded.records if r.kind == "control" and r.state == "complete")


def of(controls: tuple[Record, ...], name: str) -> list[Record]:
    return [record for record in controls if record.experiment["name"] == name]


def slowed_by(controls: tuple[Record, ...], share: float) -> list[Record]:
    wanted = f"slowed:{share:.6g}"
    return [r for r in of(controls, "slowed-bench-itself") if r.arm("candidate").arm["method"] == wanted]


def decode(record: Record) -> AxisResult:
    return next(axis for axis in record.axes if axis.metric == "decode_tps")


def test_of_twenty_runs_of_equal_arms_at_most_one_finds_a_difference(controls: tuple[Record, ...]) -> None:
    runs = of(controls, "aa-bench-itself")
    assert len(runs) >= 20
    assert len({run.experiment["seed"] for run in runs}) >= 20, "each in an order of its own"
    different = [run.run_id for run in runs if {"better", "worse"} & {axis.verdict for axis in run.axes}]
    assert len(different) <= len(runs) // 20, different


def test_an_arm_slowed_by_a_tenth_is_worse_by_a_tenth(controls: tuple[Record, ...]) -> None:
    runs = slowed_by(controls, 0.10)
    assert runs
    for run in runs:
        assert decode(run).verdict == "worse"
        assert decode(run).low <= 1 / 1.10 <= decode(run).high


def test_an_arm_slowed_by_the_margin_exactly_is_not_better(controls: tuple[Record, ...]) -> None:
    runs = slowed_by(controls, 0.03)
    assert runs
    for run in runs:
        assert decode(run).margin == 0.03
        assert decode(run).verdict != "better"


def test_their_verdicts_follow_from_their_visits(controls: tuple[Record, ...]) -> None:
    for record in controls:
        assert list(contradictions(record)) == []
