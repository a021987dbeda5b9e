"""The A/A control that a record rests on must lie in the lab and say what the record tells of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from labkit.core.records import Record
from labkit.lab.deciding.floor_evidence import floor_problems
from labkit.lab.deciding.judgement import judge
from labkit.lab.measuring.floor import floor_of
from labkit.store.write import write_record
from tests.unit.decided_lab import CODE, NAME, open_lab, record_of, refusal, rejudged
from tests.unit.sample_records import SLUG

pytestmark = pytest.mark.usefixtures("sample_code")

CONTROL = "20261104T080000Z-aa-null-ab-aa00aa"
Change = Callable[[Record], Record]


def control_of(record: Record) -> Record:
    """Two equal arms: the baseline's visits on both."""
    baseline = record.arm("baseline")
    arms = (baseline, replace(baseline, role="candidate"))
    values = {v.pair: v.metrics for v in record.visits if v.role == "baseline"}
    visits = tuple(replace(v, metrics=values[v.pair]) for v in record.visits)
    return replace(record, run_id=CONTROL, kind="control", arms=arms, visits=visits)


def resting(root: Path, change: Change = lambda r: r, *, kept: bool = True) -> Record:
    """A record in a lab that rests on a control, which is put through a change before it is kept."""
    record = record_of(open_lab(root))
    control = control_of(record)
    floor = floor_of(control)
    assert floor is not None
    if kept:
        write_record(change(control), root)
    record = rejudged(replace(record, floor=floor.to_json(10)))
    write_record(record, root)
    return record


def slower(record: Record) -> Record:
    visits = (
        replace(v, metrics={**v.metrics, "decode_tps": 0.9 * v.metrics["decode_tps"]})
        if v.role == "candidate"
        else v
        for v in record.visits
    )
    return replace(record, visits=tuple(visits))


def test_a_control_that_says_the_same_is_no_problem(tmp_path: Path) -> None:
    assert list(floor_problems(resting(tmp_path), tmp_path)) == []
    assert list(floor_problems(record_of(tmp_path), tmp_path)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: replace(r, kind="experiment"), "which is no complete control"),
        (lambda r: replace(r, state="partial"), "which is no complete control"),
        (slower, "which has another spread of decode_tps"),
        (lambda r: replace(r, workload_hash="other"), "which is of another workload"),
        (lambda r: replace(r, arms=(r.arms[0], replace(r.arms[1], arm_hash="x"))), "whose arms are not both"),
        (lambda r: replace(r, started_at="2026-11-03T10:15:00Z"), "which has another number of pairs or ano"),
        (lambda r: replace(r, visits=r.visits[:10]), "which has another number of pairs or another start"),
    ],
)
def test_what_is_otherwise_is_told(tmp_path: Path, change: Change, words: str) -> None:
    (found, *_) = floor_problems(resting(tmp_path, change), tmp_path)
    assert found.startswith(f"{CONTROL}, {words}")


def test_one_that_is_missing_damaged_or_elsewhere_is_told(tmp_path: Path) -> None:
    record = resting(tmp_path, kept=False)
    assert list(floor_problems(record, tmp_path)) == [f"{CONTROL}, which is not in this lab"]
    out = replace(record, floor={**record.floor, "run_id": f"../{CONTROL}"})
    assert list(floor_problems(out, tmp_path)) == [f"'../{CONTROL}', which is no id"]
    (tmp_path / "results" / SLUG / f"{CONTROL}.json").write_text("{")
    (found,) = floor_problems(record, tmp_path)
    assert found.startswith(f"{CONTROL}, which is damaged: ")


def test_neither_a_promotion_nor_a_judgement_rests_on_a_control_that_is_not_there(tmp_path: Path) -> None:
    resting(tmp_path, kept=False)
    words = "- floor: the A/A control that the record rests on is needed, got "
    assert f"{words}{CONTROL}, which is not in this lab; labkit run" in refusal(tmp_path)
    found = judge(NAME, root=tmp_path, machine=SLUG, code=CODE)
    assert found.rule == "a contradicted record"
