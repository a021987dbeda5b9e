"""What a promotion is held against: newer records, the file as it states, a torn promotion, damage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from labkit.core.errors import DecisionRefused
from labkit.lab import promotion
from labkit.lab.burial import delete
from labkit.lab.check import check
from labkit.lab.promotion import promote
from labkit.store.decisions import read_recipes
from labkit.store.write import write_record
from tests.unit.decided_lab import (
    CODE,
    EXPERIMENT,
    NAME,
    REFUTED,
    RUN_ID,
    SUPPORTED,
    TODAY,
    TRADE_OFF,
    measured_lab,
    open_lab,
    record_of,
    record_path,
    refusal,
)
from tests.unit.sample_records import SLUG, Shape, from_elsewhere

OLD = "20261104T101500Z-null-ab-0a1b2c"


@pytest.fixture(autouse=True)
def code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checked-out code is what the sample records name."""
    monkeypatch.setattr(promotion, "code_hash", lambda: CODE)


NEWER = "20261106T101500Z-null-ab-0a1b2c"
LATER = {"run_id": NEWER, "started_at": "2026-11-06T10:15:00Z"}


def test_no_record_is_chosen_over_a_newer_one_that_contradicts_it(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    write_record(record_of(lab, REFUTED, **LATER), lab)
    message = refusal(lab, record=RUN_ID)
    needed = "- record: one that no newer one contradicts is needed, got"
    assert f"{needed} {NEWER}, which says refuted, kv_bytes equivalent" in message


@pytest.mark.parametrize("part", ["code", "source", "machine", "state", "failed"])
def test_a_newer_record_of_something_else_contradicts_nothing(part: str, tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    newer = record_of(lab, REFUTED, **LATER)
    changed = {
        "code": from_elsewhere(newer, code_hash="0ther"),
        "source": replace(newer, experiment={**newer.experiment, "source_hash": "beef"}),
        "machine": replace(newer, machine={**newer.machine, "slug": "elsewhere"}),
        "state": replace(newer, state="partial"),
        "failed": replace(newer, outcome="failed"),
    }
    write_record(changed[part], lab)
    promote(NAME, why="x", root=lab, record=RUN_ID, today=TODAY, machine=SLUG)


def test_a_newer_record_that_contradicts_a_promotion_is_noted(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)
    write_record(record_of(lab, REFUTED, **LATER), lab)
    checked = check(lab, today=TODAY)
    (note,) = checked.notes
    assert checked.ok and note.startswith("null-ab is promoted as supported, and the newer results/")
    assert note.endswith(f"{NEWER}.json says refuted.")


def test_an_id_of_two_machines_is_that_of_this_one_or_ambiguous(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path, REFUTED)
    write_record(record_of(lab, SUPPORTED, slug="a-machine"), lab)
    assert "got refuted" in refusal(lab, record=RUN_ID)
    message = refusal(lab, record=RUN_ID, machine="c-machine")
    assert f"- record: an id that one machine class has is needed, got {RUN_ID}, which 2 have" in message
    assert f"options: results/a-machine/{RUN_ID}.json, results/{SLUG}/{RUN_ID}.json" in message


def test_a_file_that_states_another_model_than_it_measured_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm = 'Arm(__import__("os").environ.get("CANDIDATE", "null:kv_bytes_per_token=40"))'
    lab = open_lab(tmp_path, EXPERIMENT.replace('Arm("null:kv_bytes_per_token=40")', arm))
    write_record(record_of(lab), lab)
    monkeypatch.setenv("CANDIDATE", "null:kv_bytes_per_token=90")
    assert "candidate.model: null:kv_bytes_per_token=40 was measured, and the file states " in refusal(lab)


def test_a_model_is_the_same_by_the_last_part_of_its_path(tmp_path: Path) -> None:
    text = EXPERIMENT.replace('Arm("null', 'Arm("/models/null')
    lab = open_lab(tmp_path, text)
    write_record(record_of(lab), lab)
    promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)
    assert read_recipes(lab)[0].arm.model == "/models/null:kv_bytes_per_token=40"


def torn_lab(root: Path, shape: Shape = SUPPORTED) -> Path:
    """A lab whose promotion ended before the file moved."""
    lab = measured_lab(root, shape)
    promote(NAME, why="first", root=lab, today=TODAY, machine=SLUG, accept_trade_off=True)
    (lab / "experiments" / "promoted" / "null-ab.py").rename(lab / "experiments" / "null-ab.py")
    return lab


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            ('outcome = "supported"', 'outcome = "trade-off"'),
            "- recipe.outcome: what its record carries, sup",
        ),
        (("kv_bytes_per_token=40", "kv_bytes_per_token=1"), "- recipe.arm: what its record carries, "),
        (('machine = "', 'machine = "x'), "- recipe.machine: what its record carries, "),
        (("prompt_tokens = 64", "prompt_tokens = 65"), "- recipe.workload: what its record carries, "),
        (('sha256 = "', 'sha256 = "0'), "- recipe.evidence: what its record carries, "),
        (('path = "results/', 'path = "results/x'), "- recipe.evidence: one record of this lab is needed"),
    ],
)
def test_a_torn_promotion_is_not_ended_for_a_recipe_that_was_pasted(
    change: tuple[str, str], words: str, tmp_path: Path
) -> None:
    lab = torn_lab(tmp_path)
    path = lab / "experiments" / "promoted.toml"
    assert change[0] in path.read_text()
    path.write_text(path.read_text().replace(*change))
    message = refusal(lab)
    assert words in message and "experiments/promoted.toml" in message


def test_a_torn_promotion_is_not_ended_against_an_objection_or_without_a_reason(tmp_path: Path) -> None:
    lab = torn_lab(tmp_path)
    assert "why: a reason in words is needed" in refusal(lab, why=" ")
    write_record(record_of(lab, REFUTED, **LATER), lab)
    assert "one that no newer one contradicts" in refusal(lab)


def test_a_torn_promotion_of_an_accepted_trade_off_is_ended(tmp_path: Path) -> None:
    promote(NAME, why="again", root=torn_lab(tmp_path, TRADE_OFF), today=TODAY, machine=SLUG)


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    record_path(lab).write_text(record_path(lab).read_text()[:500])
    assert f"- records: whole ones are needed, got results/{SLUG}/{RUN_ID}.json, which is damag" in refusal(
        lab
    )
    with pytest.raises(DecisionRefused, match=r"which is damaged .* labkit store set-aside"):
        delete(NAME, why="x", root=lab, today=TODAY)


@pytest.mark.parametrize("why", ["a\rb", "a\x1cb", "a\x85b", "a\u2028b", "a\x1b[0m"])
def test_a_reason_is_one_line_of_text(why: str, tmp_path: Path) -> None:
    assert "- why: one line of text is needed, got the control characters " in refusal(
        measured_lab(tmp_path), why=why
    )
