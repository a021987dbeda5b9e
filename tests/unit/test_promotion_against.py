"""What a promotion is held against: newer records, the file as it states, a torn promotion, damage."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from labkit.core.errors import DecisionRefused
from labkit.lab.deciding import burial, promotion
from labkit.lab.deciding.burial import delete
from labkit.lab.deciding.check import check
from labkit.lab.deciding.ledger import read_files
from labkit.lab.deciding.promotion import promote
from labkit.lab.deciding.recorded import differences
from labkit.store.decisions import read_recipes
from labkit.store.write import write_record
from tests.unit.decided_lab import (
    BASELINE,
    DOMINATING,
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
from tests.unit.sample_records import SLUG, Shape, from_elsewhere, with_candidate

pytestmark = pytest.mark.usefixtures("sample_code")


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


OTHER = "20261105T111500Z-other-ab-0a1b2c"
# The record's baseline as the candidate of another experiment, whose own baseline is better in everything.
REVERSED = replace(
    DOMINATING,
    baseline=DOMINATING.candidate,
    candidate=BASELINE,
    values={name: (best, least) for name, (least, best) in DOMINATING.values.items()},
    kl=(2e-4, 1e-4, 3e-4),
    verdicts={"kv_bytes": "worse", "decode_tps": "worse", "kl_mean_nats": "equivalent"},
    outcome="refuted",
)


def test_a_baseline_that_another_reference_dominates_is_refused(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    write_record(record_of(lab, REVERSED, OTHER), lab)
    assert f"got one dominated by null:kv_bytes_per_token=10 kv=bf16 ({OTHER})" in refusal(lab)


def test_a_baseline_that_is_dominated_over_other_windows_is_refused(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    write_record(from_elsewhere(record_of(lab, DOMINATING, OTHER), windows_hash="promote-8x512"), lab)
    assert f"({OTHER})" in refusal(lab)


@pytest.mark.parametrize("shape", [DOMINATING, REVERSED])
def test_another_work_or_family_dominates_nothing(shape: Shape, tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    record = record_of(lab, shape, OTHER)
    write_record(replace(record, workload_hash="another"), lab)
    arms = tuple(replace(arm, artifact={**arm.artifact, "family": "other"}) for arm in record.arms)
    write_record(replace(record, run_id=OTHER.replace("0a1b2c", "0a1b2d"), arms=arms), lab)
    promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)


def test_a_recipe_is_for_the_family_of_the_baseline(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    record = record_of(lab)
    artifact = {**record.arm("candidate").artifact, "family": "other"}
    write_record(with_candidate(record, artifact=artifact), lab)
    promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)
    assert read_recipes(lab)[0].family == "smollm2-135m"


def test_tune_text_that_nothing_was_scored_on_is_no_reason(tmp_path: Path) -> None:
    text = EXPERIMENT.replace(', "kl_mean_nats": 0.001', "").replace("16)", '16, split="tune")')
    text = text.replace('Workload(64, 16, split="tune")', "Workload(64, 16)")
    holds = {"decode_tps": 0.2}
    verdicts = {"kv_bytes": "better", "decode_tps": "equivalent"}
    lab = open_lab(tmp_path, text)
    write_record(
        record_of(lab, replace(SUPPORTED, holds=holds, kl=None, verdicts=verdicts), split="tune"), lab
    )
    promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)


def test_a_record_of_another_name_is_no_record_of_the_file(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    record = record_of(lab)
    (file,) = read_files(lab / "experiments")
    assert file.experiment is not None and list(differences(file.experiment, record)) == []
    (other,) = differences(file.experiment, replace(record, experiment={**record.experiment, "name": "b"}))
    assert other == "name: 'b' was measured, and the file states 'null-ab'"


def test_a_recipe_in_the_files_candidate_is_refused(tmp_path: Path) -> None:
    text = EXPERIMENT.replace('Arm("null:kv_bytes_per_token=40")', 'Arm("null:sd=0.02", recipe="kv")')
    lab = open_lab(tmp_path, text)
    write_record(record_of(lab), lab)
    assert "- candidate: an arm that states what it runs is needed, got one with a recipe" in refusal(lab)


def test_another_machine_class_is_said(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    held = dict(promote(NAME, why="x", root=lab, today=TODAY, machine="mine").lines)["holds for"]
    assert held.endswith(f"on {SLUG}, another machine class than this one (mine)")


def test_a_torn_promotion_keeps_its_first_reason_and_says_so(tmp_path: Path) -> None:
    decided = promote(NAME, why="again", root=torn_lab(tmp_path), today=TODAY, machine=SLUG)
    assert ("why", "as first given: first; the one given now was not taken") in decided.lines


def test_an_interruption_between_two_steps_waits_for_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(step: Callable[..., None]) -> Callable[..., None]:
        def then(*given: object) -> None:
            step(*given)
            signal.raise_signal(signal.SIGINT)

        return then

    lab = measured_lab(tmp_path)
    monkeypatch.setattr(promotion, "add_recipe", interrupted(promotion.add_recipe))
    monkeypatch.setattr(burial, "add_burial", interrupted(burial.add_burial))
    for decide in (promote, delete):
        with pytest.raises(KeyboardInterrupt):
            decide(NAME, why="x", root=lab, today=TODAY)
        assert check(lab, today=TODAY).ok
    assert list((lab / "experiments").rglob("*.py")) == []
