"""The hooks: valid, without downloads, and they stop a bad commit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools import check_outputs

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / ".pre-commit-config.yaml"
BINARIES = Path(sys.executable).parent
GIT = ("git", "-c", "user.name=labkit", "-c", "user.email=labkit@example.invalid")


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    held = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "PRE_COMMIT"))}
    environ = {**held, "PRE_COMMIT_HOME": str(folder / "home"), "PRE_COMMIT_COLOR": "never"}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small repository with the hooks, and the environment that they run from."""
    for name in ("pyproject.toml", ".pre-commit-config.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "labkit").mkdir()
    (tmp_path / ".venv").symlink_to(BINARIES.parent)
    (tmp_path / ".gitignore").write_text(".venv\nhome\n.ruff_cache\n")
    assert run(tmp_path, *GIT, "init", "-q").returncode == 0
    return tmp_path


def hook(checkout: Path, name: str, file: str) -> subprocess.CompletedProcess[str]:
    assert run(checkout, *GIT, "add", "-A").returncode == 0
    return run(checkout, str(BINARIES / "pre-commit"), "run", name, "--files", file)


def test_the_file_is_valid(tmp_path: Path) -> None:
    done = run(tmp_path, str(BINARIES / "pre-commit"), "validate-config", str(CONFIG))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_nothing_is_downloaded_and_every_program_is_there() -> None:
    repositories = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    for entry in repositories[0]["hooks"]:
        assert entry["language"] == "system"
        program = entry["entry"].split()[0]
        assert program.startswith(".venv/bin/") and (BINARIES / Path(program).name).exists(), program


@pytest.mark.parametrize(
    ("name", "file", "bad", "said"),
    [
        ("ruff-check", "labkit/bad.py", '"""Bad."""\n\nimport os\n', "F401"),
        ("ruff-format", "labkit/bad.py", '"""Bad."""\n\nx = {  "a":1 }\n', "unformatted"),
        ("size", "labkit/bad.py", "x = 1\n" * 501, "501 lines"),
    ],
)
def test_a_bad_file_is_stopped_and_a_good_one_passes(
    checkout: Path, name: str, file: str, bad: str, said: str
) -> None:
    (checkout / file).write_text(bad)
    stopped = hook(checkout, name, file)
    assert stopped.returncode == 1
    assert said in stopped.stdout
    assert (checkout / file).read_text() == bad  # a hook changes no file
    (checkout / file).write_text('"""Good."""\n\nx = {"a": 1}\n')
    passed = hook(checkout, name, file)
    assert passed.returncode == 0, passed.stdout
    assert "Passed" in passed.stdout


def test_a_notebook_with_outputs_is_stopped(checkout: Path) -> None:
    cell = {"cell_type": "code", "source": "1", "metadata": {}, "execution_count": 1, "outputs": []}
    (checkout / "a.ipynb").write_text(json.dumps({"cells": [cell], "metadata": {}}))
    stopped = hook(checkout, "outputs", "a.ipynb")
    assert stopped.returncode == 1
    assert "a.ipynb: 1 cells hold outputs" in stopped.stdout and "--clear-output" in stopped.stdout


def test_a_commit_runs_the_hooks(checkout: Path) -> None:
    installed = run(checkout, str(BINARIES / "pre-commit"), "install")
    assert installed.returncode == 0, installed.stderr
    assert (checkout / ".git" / "hooks" / "pre-push").exists()
    (checkout / "bad.py").write_text('"""Bad."""\n\nimport os\n')
    run(checkout, *GIT, "add", "bad.py")
    commit = run(checkout, *GIT, "commit", "-q", "-m", "bad")
    assert commit.returncode == 1
    assert "F401" in commit.stdout + commit.stderr


def test_what_is_no_notebook_is_one_line(tmp_path: Path) -> None:
    for text in ("", "[]", "{"):
        (tmp_path / "a.ipynb").write_text(text)
        (line,) = check_outputs.with_outputs([tmp_path / "a.ipynb"])
        assert line.endswith("not a notebook")
