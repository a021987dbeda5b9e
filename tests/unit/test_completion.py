"""Completion: what a shell is offered, through the protocols of bash, zsh and fish."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.cli.complete import complete_experiment_names
from labkit.core.metrics import METRICS
from labkit.lab.draft import claimable
from labkit.model.fetch import BUNDLED
from tests.unit.command_line import EXPERIMENT, labkit, make_lab

SHELLS = ("bash", "zsh", "fish")
PROGRAM = str(Path(sys.executable).parent / "labkit")
# typer asks which shell its parent is; a test runner may have none. So the shell's name is taken instead.
NAMED = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
SIGNS = {"bash": "complete -o default -F", "zsh": "#compdef labkit", "fish": "complete --command labkit"}


def complete(shell: str, line: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """What the program answers when a shell asks how `line` goes on."""
    words = shlex.split(line) + ([""] if line.endswith(" ") else [])
    asked = {
        "_LABKIT_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    environ = {**os.environ, "LABKIT_HOME": str(folder / "home"), **asked, **environ}
    # Two seconds to import and answer would already be too slow to press a key for.
    return subprocess.run(
        [PROGRAM], cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60
    )


def offered(shell: str, line: str, folder: Path) -> set[str]:
    """The values offered, without what the shell's protocol puts around them and without help texts."""
    done = complete(shell, line, folder)
    assert done.stderr == ""
    text = done.stdout
    if shell == "zsh":
        text = text.replace("_arguments '*: :((", "").replace("))'", "")
        return {word.partition(":")[0].strip('"') for word in text.splitlines() if word}
    return {word.partition("\t")[0] for word in text.splitlines() if word}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion") / "lab"
    return make_lab(folder, EXPERIMENT, "kv8.py", "kv4.py", "other.py", "_hidden.py")


@pytest.mark.parametrize("shell", SHELLS)
def test_experiment_files_are_offered_to_run(shell: str, lab: Path) -> None:
    assert offered(shell, "labkit run experiments/kv", lab) == {"experiments/kv4.py", "experiments/kv8.py"}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("command", ["fit null --context 64", "bench load null"])
def test_kv_schemes_are_offered(shell: str, command: str, tmp_path: Path) -> None:
    (tmp_path / "kv.json").write_text("[]")
    colon = r"\\:" if shell == "zsh" else ":"
    found = offered_whole(shell, f"labkit {command} --kv ", tmp_path)
    affine = {f"affine{colon}{bits}" for bits in (2, 3, 4, 5, 6, 8)}
    assert found == {"bf16", *affine, f"mixed{colon}kv.json"}


def offered_whole(shell: str, line: str, folder: Path) -> set[str]:
    """The values offered where there are no help texts."""
    text = complete(shell, line, folder).stdout.replace("_arguments '*: :((", "").replace("))'", "")
    return {word.strip('"') for word in text.splitlines() if word}


def test_the_lab_around_is_the_one_that_is_offered(lab: Path) -> None:
    (lab / "notebooks").mkdir(exist_ok=True)
    everything = {f"../experiments/{name}.py" for name in ("kv4", "kv8", "other")}
    assert offered("bash", "labkit run ", lab / "notebooks") == everything
    assert offered("bash", "labkit promote kv", lab / "notebooks") == {"kv4", "kv8"}
    assert offered("bash", "labkit run ", lab / "experiments") == {"kv4.py", "kv8.py", "other.py"}


def test_every_command_that_takes_a_file_offers_them(lab: Path) -> None:
    everything = {f"experiments/{name}.py" for name in ("kv4", "kv8", "other")}
    assert offered("bash", "labkit run ", lab) == offered("bash", "labkit plan-run ", lab) == everything


@pytest.mark.parametrize("shell", SHELLS)
def test_models_are_offered(shell: str, lab: Path) -> None:
    assert offered(shell, "labkit models show ", lab) == {*BUNDLED, "null"}


def test_the_null_model_that_is_offered_can_be_shown() -> None:
    shown = labkit("models", "show", "null:sd=0.02")
    assert shown.code == 0 and "sd=0.02" in shown.out and "without weights" in shown.out
    as_json = json.loads(labkit("models", "show", "null", "--json").out)
    assert as_json["profile"]["provider"] == "null" and as_json["artifact"] is None
    assert labkit("models", "show", "null:nonsense=1").code == 1


@pytest.mark.parametrize("shell", SHELLS)
def test_metrics_are_offered(shell: str, lab: Path) -> None:
    itl = {name for name in METRICS if name.startswith("itl_")}
    assert offered(shell, "labkit new experiment x --improves itl_", lab) == itl


def test_metrics_are_those_of_the_model_typed_before(lab: Path) -> None:
    line = "labkit new experiment x --model {} --improves "
    assert offered("bash", line.format("null"), lab) == set(claimable("null"))
    assert offered("bash", line.format("smollm2"), lab) == set(claimable("smollm2"))


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_are_offered(shell: str, lab: Path) -> None:
    assert {"run", "plan-run", "new", "models", "store"} <= offered(shell, "labkit ", lab)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_is_shown(shell: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [PROGRAM, "--show-completion", shell],
        cwd=tmp_path, env=NAMED, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert "_LABKIT_COMPLETE" in done.stdout and SIGNS[shell] in done.stdout


def test_installing_writes_only_below_the_home(tmp_path: Path) -> None:
    environ = {**NAMED, "HOME": str(tmp_path)}
    done = subprocess.run(
        [PROGRAM, "--install-completion", "bash"], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "_LABKIT_COMPLETE" in "".join(p.read_text() for p in tmp_path.rglob("*.sh"))


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is needed to try its script")
def test_bash_itself_completes(lab: Path) -> None:
    script = subprocess.run(
        [PROGRAM, "--show-completion", "bash"], env=NAMED, capture_output=True, text=True, check=True
    )
    typed = "COMP_WORDS=(labkit run experiments/kv8); COMP_CWORD=2"
    asked = f'{typed}; _labkit_completion labkit; echo "${{COMPREPLY[@]}}"'
    environ = {**os.environ, "PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{script.stdout}\n{asked}"],
        cwd=lab, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "experiments/kv8.py", done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_a_broken_lab_is_silence(shell: str, tmp_path: Path) -> None:
    (tmp_path / "experiments").write_text("a file where a folder should be")
    (tmp_path / "home").write_text("a file where models should be")
    assert offered(shell, "labkit models show g", tmp_path) == {"gemma3-270m"}
    assert complete(shell, "labkit run x", tmp_path).stderr == ""


def test_a_completer_that_fails_offers_nothing() -> None:
    class Broken:
        @property
        def params(self) -> dict[str, object]:
            raise OSError("gone")

    assert complete_experiment_names(Broken(), "") == []  # pyright: ignore[reportArgumentType]


def test_completion_loads_no_mlx(lab: Path) -> None:
    code = (
        "import sys, types; from labkit.cli import app, complete as c; x = types.SimpleNamespace(params={});"
        "c.complete_model_names(x, ''); c.complete_experiment_names(x, ''); c.complete_metric_names(x, '');"
        "print([m for m in ('mlx', 'mlx.core', 'mlx_lm', 'matplotlib', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=lab, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
