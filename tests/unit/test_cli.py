"""Bad input at the command line: one clear message on stderr, an exit code, and nothing left behind."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

import labkit as package
from labkit.cli.app import app
from labkit.core.arm import Workload
from labkit.core.errors import ExperimentInvalid, PlanRefused
from labkit.core.hypothesis import Hypothesis
from labkit.core.sampling import Sampling
from tests.unit.command_line import EXPERIMENT, Ended, files, labkit, make_lab
from tests.unit.null_experiment import null_experiment

COMMANDS = (
    *("", "models", "models get", "models list", "models show", "run", "plan-run", "experiments"),
    *("store", "store rebuild", "frontier", "demo", "promote", "delete", "renew", "check"),
    *("new", "new experiment", "doctor", "sql", "export", "store list", "store set-aside"),
    "verify",
    *("fit", "control", "bench", "bench load"),
    *("judge", "revalidate"),
    *("show", "compare", "history"),
)


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of the test's own, so that its lease is nobody else's; and an empty models home."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    return folder


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    return make_lab(tmp_path / "lab")


def refused(ended: Ended, *words: str, code: int = 1) -> None:
    """One message with every word, the exit code, and no result on stdout."""
    message = ended.message()
    assert [word for word in words if word not in message] == [], message
    assert (ended.code, ended.out) == (code, "")


def test_every_command_has_a_test_of_its_help() -> None:
    top = {c.name or str(getattr(c.callback, "__name__", "")) for c in app.registered_commands}
    assert top | {g.name for g in app.registered_groups} == {c.split()[0] for c in COMMANDS if c}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns_and_shows_no_internals(command: str) -> None:
    ended = labkit(*command.split(), "--help")
    assert (ended.code, ended.err) == (0, "")
    assert max(map(len, ended.out.splitlines())) <= 80
    assert "Raise" not in ended.out


def test_the_version_is_one_line() -> None:
    assert labkit("--version") == Ended(0, f"labkit {package.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nosuch",), ("No such command", "nosuch")),
        (("run",), ("FILE", "--resume")),
        (("run", "x.py", "--pairs", "many"), ("--pairs", "integer")),
        (("experiments", "--root", "/nosuch"), ("--root", "/nosuch", "does not exist")),
        (("store", "rebuild", "--root", "/nosuch"), ("/nosuch", "does not exist")),
        (("frontier", "--root", "/nosuch"), ("/nosuch", "does not exist")),
        (("demo", "--root", "/nosuch"), ("/nosuch", "does not exist")),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    ended = labkit(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert all(word in ended.err for word in words), ended.err
    assert not Path("/nosuch").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("get", "nosuch"),
            ("a model that labkit knows", "nosuch", "options: gemma3-270m, smollm2", "labkit models list"),
        ),
        (("show", "smolm2"), ("smolm2", "did you mean smollm2?")),
        (("show", "smollm2"), ("installed", "labkit models get smollm2")),
        (("get", ""), ("an empty name", "options")),
        (("get", "none.gguf"), ("a GGUF file", "none.gguf: no such file")),
        (("get", "/"), ("config.json", "got:     /")),
        (("get", "a/b/c:x.gguf"), ("a GGUF file", "no such file")),
        (("get", "smollm2", "--dtype", "int9"), ("a dtype", "int9", "float32, bfloat16, float16")),
    ],
)
def test_a_model_that_is_none(arguments: tuple[str, ...], words: tuple[str, ...], tmp_path: Path) -> None:
    refused(labkit("models", *arguments), *words)
    assert files(tmp_path) == set()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("experiment = ", "experiment = ("), ("mine.py, line 3, cannot be loaded", "SyntaxError")),
        (("Workload(64, 16)", "Workload(0, 16)"), ("workload.prompt_tokens", "at least 1", "got 0")),
        (("Workload(64, 16)", "Workload(64, -1)"), ("workload.new_tokens", "at least 1", "got -1")),
        (("Workload(64, 16)", "Workload(64, 1)"), ("new_tokens", "at least 3", "'decode_tps'", "got 1")),
        (("pairs=2", "pairs=10**9"), ("pairs: at most 1000", "got 1000000000")),
        (("null:kv_bytes_per_token=100", "nosuch"), ("a model that labkit knows", "nosuch", "smollm2")),
        (("score=None", "score=ScoreText(split='all')"), ("score.split: one of tune, promote", "'all'")),
        (('"decode_tps"', '"kl_mean_nats"'), ("score: a text to score on", "got None")),
        (("Workload(64, 16)", "(64, 16)"), ("workload: a Workload is needed, got (64, 16)",)),
        (('Arm("null:kv_bytes_per_token=100")', '"null"'), ("baseline: an Arm is needed, got 'null'",)),
    ],
)
def test_an_experiment_that_cannot_run_is_refused_before_a_worker_starts(
    lab: Path, change: tuple[str, str], words: tuple[str, ...]
) -> None:
    file = lab / "experiments" / "mine.py"
    file.write_text(EXPERIMENT.replace(*change))
    refused(labkit("run", file, "--root", lab), *words)
    refused(labkit("plan-run", file), *words)
    assert files(lab) == {"experiments/mine.py"}


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        ('Arm("null", kv="affine:7")', ("one of the bits that", "'affine:7'", "affine:4, affine:5")),
        ('Arm("null", sampling=Sampling(0.0, top_p=0.5))', ("greedy or top-p, not both", "top_p=1")),
        ('Arm("null:speed=2")', ("the null model", "speed=2", "decode_tps")),
    ],
)
def test_an_arm_that_cannot_run_is_refused_before_a_visit(
    lab: Path, arm: str, words: tuple[str, ...]
) -> None:
    file = lab / "experiments" / "mine.py"
    file.write_text(EXPERIMENT.replace('Arm("null:kv_bytes_per_token=100")', arm))
    ended = labkit("run", file, "--root", lab)
    refused(ended, *words)
    assert "warm-up" not in ended.err
    assert files(lab) == {"experiments/mine.py"}


def test_a_metric_that_visits_do_not_measure_is_refused_after_the_warm_up(lab: Path) -> None:
    file = lab / "experiments" / "mine.py"
    file.write_text(EXPERIMENT.replace("kv_bytes_per_token=40", "kv_bytes_per_token=0"))
    ended = labkit("run", file, "--root", lab)
    refused(ended, "visits that measure kv_bytes as a positive number", "0 on null:", "decode_tps")
    assert "visits ..." not in ended.err
    assert files(lab) == {"experiments/mine.py"}


@pytest.mark.parametrize(
    ("metric", "workload", "words"),
    [
        (
            "prefill_tps",
            Workload(1, 8),
            "workload.prompt_tokens: at least 2 are needed to measure 'prefill_tps'",
        ),
        ("decode_tps", Workload(8, 1), "workload.new_tokens: at least 3 are needed to measure 'decode_tps'"),
        ("itl_p99_s", Workload(8, 1), "workload.new_tokens: at least 3 are needed to measure 'itl_p99_s'"),
    ],
)
def test_a_rate_needs_more_than_one_token(metric: str, workload: Workload, words: str) -> None:
    claim = Hypothesis("faster", improves={metric: 0.1})
    with pytest.raises(ExperimentInvalid, match=words):
        null_experiment(hypothesis=claim, workload=workload).validate()


@pytest.mark.parametrize("value", ["float('nan')", "float('inf')", "'hot'", "True"])
def test_sampling_that_is_no_number_is_named(lab: Path, value: str) -> None:
    file = lab / "experiments" / "mine.py"
    arm = f'Arm("null", sampling=Sampling(temperature={value}))'
    file.write_text(EXPERIMENT.replace('Arm("null:kv_bytes_per_token=100")', arm))
    words = ("baseline.sampling.temperature: a finite number is needed", repr(eval(value)))
    refused(labkit("run", file, "--root", lab), *words)


@pytest.mark.parametrize(
    ("prompt", "options", "words"),
    [
        ("", {}, "at least one token.*an empty prompt"),
        ([1] * 5000, {}, "at most 4096 tokens.*5000 tokens"),
        ("x" * 4000, {"max_tokens": 100}, r"4000 \+ 100 tokens.*max_tokens from 1 to 96"),
        ("x", {"max_tokens": 0}, "max_tokens.*a whole number of at least 1.*0"),
        ("x", {"max_tokens": -3}, "a whole number of at least 1.*-3"),
        ("x", {"max_tokens": True}, "a whole number of at least 1.*True"),
        ("x", {"kv": "afine:8"}, "did you mean 'affine:8'"),
        ("x", {"sampling": Sampling(float("nan"))}, "temperature.*nan"),
        ("x", {"sampling": Sampling(-1.0)}, "temperature.*-1.0"),
        ("x", {"sampling": Sampling(0.5, top_p=0.0)}, "top_p.*from 1e-06 to 1"),
        ("x", {"sampling": Sampling(0.0, top_p=0.9)}, "greedy or top-p, not both"),
    ],
)
def test_a_session_that_cannot_run_is_refused(prompt: str | list[int], options: dict, words: str) -> None:
    with pytest.raises(PlanRefused, match=f"(?s){words}"):
        package.load("null").session(prompt, **options)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", ["--version", "experiments"])
def test_a_full_disk_under_stdout_is_one_message(lab: Path, command: str) -> None:
    with Path("/dev/full").open("w") as full:
        arguments = [sys.executable, "-m", "labkit.cli.main", command]
        done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True, cwd=lab, check=False)
    assert "No space left on device" in Ended(done.returncode, "", done.stderr).message()
    assert done.returncode == 1


def test_a_missing_file_or_folder_is_named(lab: Path) -> None:
    for command in ("run", "plan-run"):
        refused(labkit(command, lab / "none.py"), "an experiment file is needed", "none.py: no such file")
        refused(labkit(command, lab), "an experiment file is needed", "a folder")


def test_too_few_pairs(lab: Path) -> None:
    file = lab / "experiments" / "mine.py"
    refused(labkit("run", file, "--root", lab, "--pairs", "0"), "pairs", "at least 1", "got 0")
    refused(labkit("plan-run", file, "--pilot", "2"), "a pilot of at least 3 pairs", "2")
    file.write_text(EXPERIMENT.replace("kv_bytes", "effective_bpw").replace("decode_tps", "artifact_bytes"))
    refused(labkit("plan-run", file), "an axis that visits measure", "effective_bpw", "prefill_tps")


def test_a_folder_without_experiments_or_records(tmp_path: Path) -> None:
    root = ("--root", tmp_path)
    refused(labkit("experiments", *root), "experiment files are needed", str(tmp_path), "--root")
    refused(labkit("frontier", *root), "at least one complete record", "none", "labkit run experiments/")
    refused(labkit("demo", *root), "experiment files are needed", f"none below {tmp_path}", "--root")
    assert files(tmp_path) == set()


def test_a_damaged_record_is_named_and_left_alone(lab: Path) -> None:
    torn = lab / "results" / "machine" / "torn.json"
    torn.parent.mkdir(parents=True)
    torn.write_text("{")
    refused(labkit("frontier", "--root", lab), "none, and 1 damaged", "labkit store list")
    listed = labkit("experiments", "--root", lab, "--json")
    assert json.loads(listed.out)[0]["state"] == "open"
    assert "damaged record, left as it is and out of this: results/machine/torn.json" in listed.err
    assert "torn.json" in labkit("store", "rebuild", "--root", lab).err
    assert torn.read_text() == "{"


def test_a_results_folder_that_cannot_be_written_is_told_before_the_run(lab: Path) -> None:
    (lab / "results").write_text("a file in the way")
    ended = labkit("run", lab / "experiments" / "mine.py", "--root", lab)
    refused(ended, "a results folder with room for a record", "Not a directory", "--root")
    refused(labkit("store", "rebuild", "--root", lab), "a file or folder", "results")
    assert (lab / "results").read_text() == "a file in the way"


def test_one_damaged_model_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "models"
    configs = {"good": '{"model_type": "llama"}', "bad": "{nonsense", "worse": '{"quantization": 4}'}
    for name, config in configs.items():
        (home / name).mkdir(parents=True)
        tensors = {"w.weight": np.zeros((2, 2), np.uint32), "w.scales": np.zeros((2, 1), np.float32)}
        plain = {"w.weight": np.zeros((2, 2), np.float32)}
        save_file(plain if name == "good" else tensors, home / name / "model.safetensors")
        (home / name / "config.json").write_text(config)
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    answer = CliRunner().invoke(app, ["models", "list"])
    assert answer.exit_code == 0
    assert "good" in answer.stdout
    assert "bad is damaged" in answer.stderr
    assert "worse is damaged" in answer.stderr
    assert "a mapping was needed under `quantization`" in answer.stderr


def test_the_list_speaks_of_the_null_model() -> None:
    assert "`null` is always there" in " ".join(labkit("models", "list", "--help").out.split())
