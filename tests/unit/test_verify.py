"""Verify: what its checks say of answers and records, what gives and takes a badge, and how it is shown."""

from __future__ import annotations

import inspect
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import labkit as package
from labkit.cli.console import Console
from labkit.cli.verify import print_verification
from labkit.cli.verify import verify as verify_command
from labkit.core.arm import Arm
from labkit.core.errors import LabkitError, WorkerFailed
from labkit.lab.measuring.finished import Finished
from labkit.lab.verifying import verify as module
from labkit.lab.verifying.head_to_head import PAIRS, decode_axis, head_to_head
from labkit.lab.verifying.verification import Verification
from labkit.lab.verifying.verify import NotVerifiable, verify
from labkit.lab.verifying.verify_checks import (
    Check,
    open_checks,
    parity_check,
    parity_skipped,
    prompt_lengths,
    race_checks,
    speed_skipped,
)
from labkit.model.artifact import Artifact
from labkit.store.badges import read_badges
from tests.unit.command_line import labkit
from tests.unit.sample_records import SLUG
from tests.unit.test_parity import BF16, answer, generated
from tests.unit.verified_lab import FINGERPRINT, PARITY, finished, race_record, verified_lab

GOLDEN = Path(__file__).parent / "golden"
WORSE = parity_check("bf16", "one chunk", 257, answer(generated(rows=("a", "x", "c"))))
ARTIFACT = Artifact("smollm2", "smollm2", Path("m"), FINGERPRINT, "float32", 1, 1, 32.0)
WANTED = module._Wanted("smollm2", ARTIFACT, SLUG)


def concluded(root: Path, checks: tuple[Check, ...], ended: Finished | None = None) -> Verification:
    return module._concluded(WANTED, (*checks, *open_checks()), ended, root)


def raced(root: Path, checks: tuple[Check, ...] = PARITY, **changes: Any) -> Verification:
    ended = finished(root, **changes)
    return concluded(root, (*checks, *race_checks(ended.record)), ended)


def shown(found: Verification, root: Path) -> str:
    out = io.StringIO()
    print_verification(Console(file=out, width=80, highlight=False), found)
    text = out.getvalue().replace(str(root), "LAB")
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def test_prompts_end_before_with_and_after_the_boundary_of_a_chunk() -> None:
    """The last prompt token is the decode step's, so prefill has one token less."""
    assert [-(-(n - 1) // 256) for n in prompt_lengths(256).values()] == [1, 1, 2]
    assert prompt_lengths(256)["one chunk"] - 1 == 256


def test_parity_passes_only_where_every_bit_is_equal() -> None:
    assert parity_check("bf16", "short", 7, answer()).status == "passed"
    assert (WORSE.status, WORSE.name) == ("failed", "parity bf16, one chunk")
    for odd in (
        answer(generated(tokens=(1, 2, 3))),
        answer(generated(rows=())),
        answer(itself=True),
    ):
        assert parity_check("bf16", "short", 7, odd).status == "failed", odd


def test_what_mlx_lm_itself_could_not_run_is_no_evidence_and_leaves_an_older_badge(tmp_path: Path) -> None:
    verified_lab(tmp_path)
    void = parity_check("bf16", "short", 7, answer(unavailable="mlx-lm failed: MemoryError"))
    assert (void.status, "MemoryError" in void.found) == ("void", True)
    found = concluded(tmp_path, (void, speed_skipped([void])))
    assert not found.verified and found.kept and not found.withdrawn
    assert found.sentence() == (
        f"smollm2 is not verified on {SLUG}; no evidence: parity bf16, short. Verify it again."
        " Its older badge stays as it was."
    )
    assert found.checks[1].found == "not measured, since mlx-lm had nothing to compare with"


@pytest.mark.parametrize("compared", [{"unavailable": "mlx-lm failed: MemoryError"}, None])
def test_a_race_whose_oracle_failed_is_no_evidence_of_its_bits(compared: dict[str, Any] | None) -> None:
    oracles = {BF16: compared} if compared else {}
    record = replace(race_record(), parity={"candidate": {"equals": [], "oracles": oracles}})
    assert race_checks(record)[0].status == "void"


@pytest.mark.parametrize(
    ("changes", "statuses"),
    [
        ({"low": 0.9801}, ("passed", "passed", "passed")),
        ({"low": 0.9799}, ("passed", "passed", "failed")),
        ({"low": 0.99, "quiet": False}, ("passed", "void", "void")),
        ({"low": 0.5, "quiet": False}, ("passed", "void", "void")),
        ({"low": 0.99, "same": False}, ("failed", "passed", "passed")),
    ],
)
def test_decode_needs_a_quiet_machine_and_the_lower_end(
    changes: dict[str, Any], statuses: tuple[str, ...]
) -> None:
    checks = race_checks(race_record(**changes))
    assert tuple(check.status for check in checks) == statuses


@pytest.mark.parametrize("odd", ["partial", "control", "few pairs", "an arm of its own", "another model"])
def test_only_the_whole_race_is_evidence(odd: str) -> None:
    record = race_record()
    assert decode_axis(record) == record.axes[0]
    baseline, candidate = record.arms
    changed = {
        "partial": {"state": "partial"},
        "control": {"kind": "control"},
        "few pairs": {"axes": (replace(record.axes[0], n=7),)},
        "an arm of its own": {
            "arms": (baseline, replace(candidate, arm=Arm("smollm2", kv="affine:4").identity()))
        },
        "another model": {
            "arms": (replace(baseline, artifact={"fingerprint": "0"}), candidate),
        },
    }[odd]
    record = replace(record, **changed)
    assert decode_axis(record) is None
    assert race_checks(record)[-1].status == "void"


def test_the_race_is_a_valid_experiment_whatever_the_model_is_called() -> None:
    for name in ("smollm2", "org/A Model_of.4bit", "ü", "x" * 90):
        experiment = head_to_head("smollm2", name, 8)
        experiment.validate()
        assert (experiment.baseline.method, experiment.candidate) == ("mlx-lm", Arm("smollm2"))


def test_passing_gives_a_badge_that_names_its_record(tmp_path: Path) -> None:
    found = raced(tmp_path)
    assert found.verified and found.path is not None
    (badge,) = read_badges(tmp_path).found
    assert badge == found.badge
    assert (badge.pairs, badge.open_checks) == (32, ("evals",))
    assert badge.lower_bound == pytest.approx(0.987)  # to the last digits of a float, of an interval
    assert [(fact.kv, fact.prompt_tokens, fact.status) for fact in badge.parity] == [
        ("bf16", 7, "passed"),
        ("affine:8", 0, "skipped"),
        ("bf16", 32, "passed"),
    ]
    assert str(tmp_path) not in found.path.read_text()
    assert repr(found) == "<Verification smollm2: verified (4 passed, 1 skipped, 1 open)>"


def test_failing_withdraws_the_older_badge_and_noise_does_not(tmp_path: Path) -> None:
    verified_lab(tmp_path)
    (tmp_path / "results" / SLUG).rename(tmp_path / "results" / "older")
    noisy = raced(tmp_path, quiet=False)
    assert not noisy.verified and noisy.kept and not noisy.withdrawn
    assert noisy.sentence().endswith("Its older badge stays as it was.")
    assert len(read_badges(tmp_path).found) == 1
    failed = concluded(tmp_path, (WORSE, speed_skipped([WORSE])))
    assert failed.withdrawn and not failed.kept
    assert failed.sentence() == (
        f"smollm2 is not verified on {SLUG}; failed: parity bf16, one chunk. Its older badge is withdrawn."
    )
    assert read_badges(tmp_path).found == ()


def test_the_tables_are_the_golden_ones(tmp_path: Path) -> None:
    room = parity_skipped("bf16", "past it", 290, "with 32 new ones longer than the context of 300")
    labs = [tmp_path / name for name in ("verified", "slow", "noisy", "other-bits")]
    results = (
        raced(labs[0], (*PARITY, room)),
        raced(labs[1], low=0.953),
        raced(labs[2], quiet=False),
        concluded(labs[3], (WORSE, speed_skipped([WORSE]))),
    )
    text = "\n".join(f"# {lab.name}\n{shown(found, lab)}" for lab, found in zip(labs, results, strict=True))
    assert max(len(line) for line in text.splitlines() if "results/" not in line) <= 80
    assert text == (GOLDEN / "verify.txt").read_text()


def test_html_and_json_hold_every_check(tmp_path: Path) -> None:
    checks = (Check("parity <bf16>", "failed", "a & b", "bf16", 7), speed_skipped([WORSE]))
    found = concluded(tmp_path, checks)
    page = found._repr_html_()
    assert "parity &lt;bf16&gt;" in page and "a &amp; b" in page and "no eval suite yet" in page
    data = json.loads(json.dumps(found.to_json()))
    assert (data["verified"], data["badge"], len(data["checks"])) == (False, None, 3)


def test_a_null_model_is_refused_with_one_message(tmp_path: Path) -> None:
    ended = labkit("verify", "null:sd=0.02", "--root", tmp_path)
    assert ended.code == 1 and ended.out == ""
    assert "a null model has no oracle to be verified against" in ended.message()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("pairs", [7, 0, -1, True, 8.0, "8"])
def test_too_few_pairs_are_refused_before_anything_runs(tmp_path: Path, pairs: Any) -> None:
    with pytest.raises(NotVerifiable, match="at least 8 pairs are needed"):
        verify("smollm2", pairs=pairs, root=tmp_path)


def test_an_unknown_model_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    assert "a model that labkit knows" in labkit("verify", "nosuch", "--root", tmp_path).message()


def test_reasons_of_a_refused_plan_are_told_in_a_line() -> None:
    plan = "tiny cannot run this request:\n- kv: a, got b\n    options: bf16\n- method: c, got d"
    assert module._reasons(WorkerFailed(plan)) == "kv: a, got b; method: c, got d"
    assert module._reasons(LabkitError("one need", got="that")) == "one need; got that"


def test_the_command_asks_for_as_many_pairs_as_the_function() -> None:
    assert inspect.signature(verify_command).parameters["pairs"].default == PAIRS


def test_it_is_public() -> None:
    assert package.verify is verify
    assert BF16 == "mlx-lm kv=bf16"
