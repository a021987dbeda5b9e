"""`labkit models get` that is stopped, killed or run twice: nothing half-done stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.model import registry
from tests.numerics.tiny_directory import write_directory
from tests.numerics.tiny_gguf import write_gguf
from tests.unit.command_line import kept_handlers

# Every tensor takes a while, and the first one says so.
SLOW = """
import sys, time
from labkit.model.tensor_writer import TensorWriter
append = TensorWriter.append
def slowly(*arguments):
    append(*arguments)
    sys.stdout.write("writing\\n")
    sys.stdout.flush()
    time.sleep(0.05)
TensorWriter.append = slowly
from labkit.cli.main import main
main()
"""
SOURCES = ("tiny.gguf", "tiny-model")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder with one source of each kind."""
    folder = tmp_path / "sources"
    folder.mkdir()
    write_gguf(folder / "tiny.gguf")
    write_directory(folder / "tiny-model")
    return folder


def start(source: Path, home: Path, *, slow: bool = True) -> subprocess.Popen[str]:
    line = [sys.executable, *(("-c", SLOW) if slow else ("-m", "labkit.cli.main"))]
    with kept_handlers():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return subprocess.Popen(
            [*line, "models", "get", str(source), "--dtype", "float16"],
            env={**os.environ, "LABKIT_HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def wait_until_it_writes(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n", process.stderr and process.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", SOURCES)
def test_a_stopped_get_leaves_nothing(sources: Path, tmp_path: Path, name: str, number: int) -> None:
    with start(sources / name, tmp_path) as process:
        wait_until_it_writes(process)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()[-1]) == (130, "labkit: interrupted")
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.parametrize("name", SOURCES)
def test_what_a_killed_get_left_goes_with_the_next(sources: Path, tmp_path: Path, name: str) -> None:
    models = tmp_path / "models"
    with start(sources / name, tmp_path) as process:
        wait_until_it_writes(process)
        process.kill()
    assert [f.name.startswith(".staging-") for f in models.iterdir()] == [True]
    assert registry.installed(models) == ()
    assert registry.damaged(models) == ()
    with start(sources / name, tmp_path, slow=False) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert [f.name for f in models.iterdir()] == [f"{Path(name).stem}-float16"]


@pytest.mark.parametrize("name", SOURCES)
def test_two_at_once_both_succeed(sources: Path, tmp_path: Path, name: str) -> None:
    both = [start(sources / name, tmp_path) for _ in range(2)]
    errors = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    models = tmp_path / "models"
    assert [f.name for f in models.iterdir()] == [f"{Path(name).stem}-float16"]
    assert len(registry.installed(models)) == 1


@pytest.mark.parametrize("name", SOURCES)
def test_a_failing_get_leaves_nothing(sources: Path, tmp_path: Path, name: str) -> None:
    """The disk fills while the weights are written."""
    fill = SLOW.replace("    append(*arguments)\n", "    raise OSError(28, 'No space left on device')\n")
    line = [sys.executable, "-c", fill, "models", "get", str(sources / name), "--dtype", "float16"]
    environ = {**os.environ, "LABKIT_HOME": str(tmp_path)}
    done = subprocess.run(line, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "more free disk space was needed" in done.stderr
    assert list((tmp_path / "models").iterdir()) == []
