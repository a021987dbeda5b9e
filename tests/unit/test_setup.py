"""The set-up: which Python, which backend, and that it is done once and taken up again after a failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import labkit
from tools import bootstrap

ROOT = Path(labkit.__file__).parent.parent


def make(folder: Path, *targets: str) -> str:
    """What make would run, without running it."""
    command = ["make", "--dry-run", "--no-print-directory", *targets]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environ, check=True).stdout


def test_second_setup_installs_nothing_and_a_changed_pin_does(tmp_path: Path) -> None:
    for number, name in enumerate(("pyproject.toml", "constraints.txt", ".venv/.installed-auto")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (number, number))
    shutil.copy(ROOT / "Makefile", tmp_path)
    assert "tools.bootstrap" not in make(tmp_path, "setup")
    os.utime(tmp_path / "constraints.txt", (9, 9))
    assert "tools.bootstrap" in make(tmp_path, "setup")
    assert "activate" in make(tmp_path, "setup") and "activate" not in make(tmp_path, "demo")
    assert "--backend cuda13" in make(tmp_path, "setup", "BACKEND=cuda13")


def test_python_without_a_fitting_version_is_one_clear_message(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    answer = subprocess.run(
        ["sh", "tools/find_python.sh"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHON": str(old)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 1
    assert answer.stderr.startswith("labkit needs Python 3.11, 3.12 or 3.13 with venv.")


@pytest.mark.parametrize("code", [0, 3])
def test_only_a_finished_install_leaves_a_stamp(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".venv").mkdir()
    monkeypatch.chdir(tmp_path)
    stamp = Path(".venv/.installed-auto")
    stamp.write_text("old")
    monkeypatch.setattr(bootstrap, "make_environment", lambda _: Path(sys.executable))
    monkeypatch.setattr(bootstrap, "remove_other_build", lambda *_: None)
    failing = [sys.executable, "-c", f"print('no space left'); raise SystemExit({code})"]
    logged = bootstrap.run_logged
    monkeypatch.setattr(bootstrap, "run_logged", lambda _, log: logged(failing, log))
    assert bootstrap.set_up("cpu", stamp) == code
    assert stamp.exists() == (code == 0)
    assert ("no space left" in capsys.readouterr().err) == (code != 0)


def test_extras_follow_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(bootstrap, "openblas_library", lambda: None)
    assert bootstrap.pick_extras("cpu") == ("cpu", "mkl", "dev")
    assert bootstrap.pick_extras("cuda13") == ("cuda13", "dev")
    assert bootstrap.pick_extras(None) == ("dev",)
    monkeypatch.setattr(bootstrap, "openblas_library", lambda: "libopenblas.so.0")
    assert bootstrap.pick_extras("cpu") == ("cpu", "dev")


@pytest.mark.parametrize(
    ("answer", "backend"),
    [
        ("exit 9", "cpu"),
        ("echo '| NVIDIA-SMI 580.95  Driver Version: 580.95  CUDA Version: 13.0 |'", "cuda13"),
        ("echo '| NVIDIA-SMI 535.10  Driver Version: 535.10  CUDA Version: 12.2 |'", "cpu"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="a Mac takes no backend extra")
def test_backend_follows_the_driver(
    answer: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{answer}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert bootstrap.detect_backend() == backend
