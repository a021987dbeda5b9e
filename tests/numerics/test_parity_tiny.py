"""Parity on a tiny model: the worker's digests of an arm and of mlx-lm, and `labkit verify` around them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from labkit.bench.client import CommandFailed
from labkit.bench.commands import ArmCommands
from labkit.bench.parity import MOST_TOKENS, generate, measure_parity
from labkit.core.arm import Arm, Workload
from labkit.core.errors import PlanRefused, WorkerFailed
from labkit.core.sampling import Sampling
from labkit.engine.load import load
from labkit.engine.model import Model
from labkit.engine.upstream import UpstreamRun
from labkit.kv.affine import Affine
from labkit.lab.measuring.finished import Finished
from labkit.lab.measuring.parity import parity
from labkit.lab.measuring.provenance import machine_class, provenance
from labkit.lab.verifying import verify as verify_module
from labkit.lab.verifying.verify import NotVerifiable, verify
from labkit.model.backend import prepare
from labkit.store.badges import read_badges
from labkit.store.write import write_record
from tests.numerics.tiny_directory import CONFIG, make_weights, write_directory
from tests.unit.command_line import labkit
from tests.unit.verified_lab import race_record

WORK = Workload(prompt_tokens=20, new_tokens=6)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_directory(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def tiny(directory: Path) -> Model:
    return load(directory)


def compared(model: Model, **arm: Any) -> dict[str, Any]:
    """What parity says of an arm against mlx-lm."""
    answer = measure_parity(model, Arm(str(model.path), **arm), WORK)
    (found,) = parity({"candidate": answer})["candidate"]["oracles"].values()
    return found


def test_a_worker_answers_with_digests_of_both_sides(directory: Path) -> None:
    table = ArmCommands(Arm(str(directory))).table()
    answer = json.loads(json.dumps(table["parity"]({"workload": Workload(300, 500).identity()})))
    assert len(answer["arm"]["tokens"]) == len(answer["arm"]["rows"]) == MOST_TOKENS
    assert answer["arm"] == answer["oracle"]["generated"]
    assert (answer["oracle"]["name"], answer["arm"]["dtype"]) == ("mlx-lm kv=bf16", "float32")


def test_digests_are_of_ids_and_of_the_raw_bytes_of_every_row(tiny: Model) -> None:
    request = tiny.request((1, 2, 3), max_tokens=4, logprobs=True, stop_tokens=())
    found = generate(tiny, request)
    steps = [step for step in tiny.open(request).steps() if step.kind == "decode"]
    rows = [np.asarray(step.logprobs)[0].tobytes() for step in steps]
    ids = np.asarray([step.tokens[0] for step in steps], dtype="<i8")
    assert found.tokens_sha256 == hashlib.sha256(ids.tobytes()).hexdigest()
    assert found.logprobs_sha256 == hashlib.sha256(b"".join(rows)).hexdigest()
    assert found.rows == tuple(hashlib.sha256(row).hexdigest()[:16] for row in rows)


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16])
def test_rows_of_16_bits_are_digested_as_they_are(directory: Path, dtype: mx.Dtype) -> None:
    """numpy has no bfloat16: a cast to float32 would hide or make a difference."""
    model = load(directory)
    model.graph.set_dtype(dtype)
    found = generate(model, model.request((1, 2, 3), max_tokens=2, logprobs=True, stop_tokens=()))
    assert found.dtype == str(dtype).rpartition(".")[2]
    assert compared(model)["logprobs_equal"] is True


def test_mlx_lm_is_its_own_oracle(tiny: Model) -> None:
    assert compared(tiny, method="mlx-lm") == {"itself": True}


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0.7), Sampling(repetition_penalty=1.3)], ids=["drawn", "penalised"]
)
def test_what_mlx_lm_cannot_run_has_no_oracle_and_says_why(tiny: Model, sampling: Sampling) -> None:
    assert "method: a method that can sample" in compared(tiny, sampling=sampling)["unavailable"] or (
        "repetition_penalty" in compared(tiny, sampling=sampling)["unavailable"]
    )


def test_a_drawn_arm_repeats_itself(tiny: Model) -> None:
    """The candidate is compared with the baseline too, so a seed must give the same tokens twice."""
    arm = Arm("tiny", sampling=Sampling(temperature=0.9))
    answers = [measure_parity(tiny, arm, WORK) for _ in range(2)]
    found = parity({"baseline": answers[0], "candidate": answers[1]})
    assert found["candidate"]["equals"] == ["baseline"]


def test_an_arm_that_cannot_run_is_refused(tiny: Model) -> None:
    with pytest.raises(PlanRefused, match="head size"):
        measure_parity(tiny, Arm("tiny", kv="affine:8"), WORK)


def test_an_oracle_that_breaks_is_no_failure_of_the_arm(tiny: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: UpstreamRun) -> None:
        raise NotImplementedError("quantized rotating caches")

    monkeypatch.setattr(UpstreamRun, "advance", broken)
    reason = "mlx-lm failed: NotImplementedError: quantized rotating caches"
    assert compared(tiny)["unavailable"] == reason


def test_one_wrong_bit_is_found_where_it_is(tiny: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """One log-probability of mlx-lm's fourth row, changed in its last bit."""
    advance = UpstreamRun.advance
    seen: list[int] = []

    def nudged(self: UpstreamRun) -> Any:
        step = advance(self)
        seen.append(1)
        if step is not None and len(seen) == 4:
            raw = np.array(step.logprobs)
            raw.view(np.uint32)[0, 5] ^= 1
            return type(step)(step.kind, step.tokens, mx.array(raw), 0.0, 0, 1, step.position)
        return step

    monkeypatch.setattr(UpstreamRun, "advance", nudged)
    found = compared(tiny)
    assert (found["tokens_equal"], found["logprobs_equal"]) == (True, False)
    assert (found["first_token"], found["first_logprobs"]) == (None, 3)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose heads of 64 take quantized caches."""
    from safetensors.numpy import save_file

    folder = write_directory(tmp_path_factory.mktemp("models") / "wide")
    random, weights = np.random.default_rng(1), make_weights()
    for name in [name for name in weights if "self_attn" in name]:
        rows, columns = weights[name].shape
        shape = (rows, 2 * columns) if "o_proj" in name else (2 * rows, columns)
        weights[name] = random.normal(0, 0.1, shape).astype(np.float32)
    save_file(weights, folder / "model.safetensors", metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps({**CONFIG, "head_dim": 64}))
    return folder


def test_quantized_caches_equal_mlx_lms_and_not_the_default(wide: Path) -> None:
    model = load(wide)
    arms = {role: Arm("wide", kv=kv) for role, kv in (("baseline", "bf16"), ("candidate", "affine:8"))}
    found = parity({role: measure_parity(model, arm, WORK) for role, arm in arms.items()})  # type: ignore[misc]
    assert found["candidate"]["equals"] == ["mlx-lm kv=affine:8"]
    assert found["candidate"]["oracles"]["baseline"]["first_logprobs"] is not None


def test_caches_that_do_not_settle_are_a_difference_or_an_error(
    wide: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap 3 of the tools: a scheme that quantizes nothing must not pass for one that does."""
    monkeypatch.setattr(Affine, "settle", lambda self, caches: None)
    with pytest.raises(Exception, match="should hold QuantizedKVCache"):
        measure_parity(load(wide), Arm("wide", kv="affine:8"), WORK)


@pytest.fixture
def raced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """In place of the race: its record, as a quiet machine would leave it. Gives the names of those run."""
    names: list[str] = []

    def run(experiment: Any, *, root: Path, floor: bool, **_: Any) -> Finished:
        assert not floor, "no check rests on an A/A control"
        names.append(experiment.name)
        fingerprint = load(experiment.candidate.model).artifact.fingerprint
        record = race_record(fingerprint=fingerprint)
        return Finished(record, write_record(record, root))

    monkeypatch.setattr(verify_module, "run", run)
    return names


def test_verify_runs_every_prompt_and_scheme_in_workers(wide: Path, tmp_path: Path, raced: list[str]) -> None:
    found = verify(wide, root=tmp_path, lease=tmp_path / "lease")
    assert [(c.kv, c.prompt_tokens, c.status) for c in found.checks if c.is_parity] == [
        (kv, prompt, "passed") for kv in ("bf16", "affine:8") for prompt in (7, 257, 290)
    ] + [("bf16", 32, "passed")]
    assert raced == ["verify-wide"]
    assert found.verified and read_badges(tmp_path).found == (found.badge,)


def test_what_the_plan_refuses_is_skipped_with_its_reason(
    directory: Path, tmp_path: Path, raced: list[str]
) -> None:
    found = verify(directory, root=tmp_path, lease=tmp_path / "lease")
    (check,) = [c for c in found.checks if c.status == "skipped"]
    assert check.name == "parity affine:8" and "head size 32" in check.found
    assert found.verified


def test_wrong_bits_fail_before_the_race(
    directory: Path, tmp_path: Path, raced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that answers as one whose log-probabilities depart would."""
    ask = verify_module.WorkerClient.ask

    def departing(self: Any, do: str, **message: Any) -> dict[str, Any]:
        answer = ask(self, do, **message)
        if do == "parity":
            answer["arm"] |= {"logprobs_sha256": "0" * 64, "rows": ["0" * 16, *answer["arm"]["rows"][1:]]}
        return answer

    monkeypatch.setattr(verify_module.WorkerClient, "ask", departing)
    found = verify(directory, root=tmp_path, lease=tmp_path / "lease")
    assert (found.verified, raced, found.record) == (False, [], None)
    assert "log-probabilities differ from token 0 on" in found.checks[0].found
    assert [c.status for c in found.checks][-2:] == ["skipped", "open"]


def test_caches_that_are_not_as_planned_fail_and_a_dead_worker_says_nothing(
    directory: Path, tmp_path: Path, raced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = verify_module.WorkerClient.ask
    errors = iter([WorkerFailed("caches as planned\n  got:     others"), *["ask"] * 2])

    def odd(self: Any, do: str, **message: Any) -> dict[str, Any]:
        error = next(errors, "dead") if do == "parity" else "ask"
        if error == "dead":
            raise CommandFailed("a worker was needed", got="it ended with signal SIGKILL", tail="")
        if isinstance(error, WorkerFailed):
            raise error
        return ask(self, do, **message)

    monkeypatch.setattr(verify_module.WorkerClient, "ask", odd)
    found = verify(directory, root=tmp_path, lease=tmp_path / "lease")
    assert found.checks[0].status == "failed"
    assert found.checks[0].found == "7 prompt tokens: caches as planned got: others"
    with pytest.raises(CommandFailed, match="SIGKILL"):
        verify(directory, root=tmp_path, lease=tmp_path / "lease")


def test_a_model_that_changed_meanwhile_is_told(
    directory: Path, tmp_path: Path, raced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = race_record(fingerprint="0" * 32)
    monkeypatch.setattr(verify_module, "run", lambda *_, **__: Finished(other, tmp_path / "r.json"))
    with pytest.raises(NotVerifiable, match="the artifact that the verification of tiny began with"):
        verify(directory, root=tmp_path, lease=tmp_path / "lease")
    assert read_badges(tmp_path).found == ()


def test_list_and_show_tell_the_badge_of_this_lab(
    tmp_path: Path, raced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race's record names another machine class and code than these, so the badge is a lost one."""
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    lab = tmp_path / "lab"
    (lab / "experiments").mkdir(parents=True)
    model = write_directory(tmp_path / "home/models/own")
    assert "badge none; labkit verify own" in " ".join(
        labkit("models", "show", "own", "--root", lab).out.split()
    )
    assert verify(model, root=lab, lease=tmp_path / "lease").verified
    listed = labkit("models", "list", "--root", lab)
    assert "badge lost" in listed.out and listed.err == ""
    (row,) = json.loads(labkit("models", "list", "--root", lab, "--json").out)["installed"]
    lost = row["verification"]["lost"]
    assert not row["verification"]["verified"]
    assert any(text.startswith("labkit's code changed") for text in lost)
    assert "badge lost" not in labkit("models", "list", "--root", tmp_path).out
    (lab / "results/verified/x.json").write_text("{")
    assert "damaged badge" in labkit("models", "show", "own", "--root", lab).err


def test_a_badge_earned_here_stands_here(
    tmp_path: Path, raced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the provenance, machine and backend that a run would write, nothing is lost."""
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    model = load(write_directory(tmp_path / "home/models/own"))
    record = race_record(fingerprint=model.artifact.fingerprint)
    plan = {"backend": model.engine.catalog.backend}
    record = replace(
        record,
        machine=machine_class(prepare()),
        provenance=provenance(tmp_path),
        arms=tuple(replace(arm, plan=plan) for arm in record.arms),
    )
    make = lambda *_, **__: Finished(record, write_record(record, tmp_path))  # noqa: E731
    monkeypatch.setattr(verify_module, "run", make)
    assert verify(model.path or "", root=tmp_path, lease=tmp_path / "lease").verified
    (row,) = json.loads(labkit("models", "list", "--root", tmp_path, "--json").out)["installed"]
    assert row["verification"]["lost"] == []
    assert "verified" in labkit("models", "list", "--root", tmp_path).out
    assert "verified on 2026-11-05: mlx-lm's bits" in labkit("models", "show", "own", "--root", tmp_path).out
