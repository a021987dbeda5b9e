"""Visits that failed are dropped from the pairs: few are said, many carry no promotion and no default."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from labkit.core.records import Record
from labkit.lab.deciding.crashes import DROPPED, crashes, failures
from labkit.lab.deciding.procedure import DEFAULT_ON, rule_on
from labkit.lab.deciding.promotion import promote
from labkit.lab.deciding.situation import look
from labkit.store.decisions import read_recipes
from labkit.store.write import write_record
from tests.unit.decided_lab import (
    NAME,
    TODAY,
    open_lab,
    record_of,
    refusal,
    with_visits_failed,
    with_windows,
)
from tests.unit.sample_records import EQUAL, SLUG

pytestmark = pytest.mark.usefixtures("sample_code")


def exact(root: Path, pairs: int = 10) -> Record:
    record = with_windows(record_of(open_lab(root), pairs=pairs), [0.0] * 16)
    parity = {"candidate": {"equals": ["baseline"], "oracles": {"baseline": EQUAL}, "prompt_tokens": 64}}
    return replace(record, parity=parity, quality={**record.quality, "kl_max_nats": 0.0})


@pytest.mark.parametrize(
    ("baseline", "candidate", "told"),
    [
        (0, 0, []),
        (0, 1, []),
        (1, 1, []),
        (0, 2, ["2 of 12 visits of the candidate failed"]),
        (0, 10, ["10 of 20 visits of the candidate failed"]),
        (2, 0, ["2 of 12 visits of the baseline failed"]),
        (2, 2, ["2 of 12 visits of the baseline failed", "2 of 12 visits of the candidate failed"]),
    ],
)
def test_many_are_more_than_a_tenth_or_than_the_other_arm_has(
    tmp_path: Path, baseline: int, candidate: int, told: list[str]
) -> None:
    record = with_visits_failed(exact(tmp_path), "baseline", baseline)
    record = with_visits_failed(record, "candidate", candidate)
    assert list(crashes(record)) == told
    assert len(list(failures(record))) == (baseline > 0) + (candidate > 0)


def test_clearly_more_than_the_other_arm_is_many_whatever_the_share(tmp_path: Path) -> None:
    record = exact(tmp_path, pairs=40)
    assert list(crashes(with_visits_failed(record, "candidate", 1))) == []
    assert list(crashes(with_visits_failed(record, "candidate", 2))) == [
        "2 of 42 visits of the candidate failed"
    ]


def test_they_keep_the_best_from_being_default_on(tmp_path: Path) -> None:
    record = exact(tmp_path)
    assert rule_on(look(record).situation).outcome == DEFAULT_ON
    found = look(with_visits_failed(record, "candidate", 10))
    assert rule_on(found.situation).rule.name == "visits that failed"
    assert found.details["visits"] == "10 of 20 visits of the candidate failed"


def test_a_promotion_is_refused_for_many_and_says_few(tmp_path: Path) -> None:
    many, few = tmp_path / "many", tmp_path / "few"
    write_record(with_visits_failed(exact(many), "candidate", 10), many)
    assert f"10 of 20 visits of the candidate failed: {DROPPED}" in refusal(many)
    write_record(with_visits_failed(exact(few), "candidate", 1), few)
    promote(NAME, why="x", root=few, today=TODAY, machine=SLUG)
    assert read_recipes(few)[0].conditions == (f"1 of 11 visits of the candidate failed: {DROPPED}",)
