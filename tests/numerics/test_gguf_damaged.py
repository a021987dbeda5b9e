"""Damaged and hostile GGUF files: one message each, in under 5 s and 500 MB, and nothing written.

The files are those of `damaged_gguf`; its docstring says which damage cannot be told and is left out. A child
process imports them one after the other, plain and with `keep_quantized`, and reports time and memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from labkit.core.errors import ModelUnavailable
from labkit.model.gguf.importer import import_gguf
from tests.numerics.damaged_gguf import damages
from tests.numerics.tiny_gguf import write_gguf

# The peak is the kernel's high-water mark, set back before each file; elsewhere that of the process.
CHILD = """
import json, resource, shutil, sys, time
from pathlib import Path
from labkit.core.errors import LabkitError
from labkit.model.gguf.importer import import_gguf

folder, status, marks = Path(sys.argv[1]), Path("/proc/self/status"), Path("/proc/self/clear_refs")

def peak_bytes():
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

import_gguf(folder / "whole.gguf", folder / "warm", dtype="float32")
files = sorted((folder / "files").iterdir())
for file, keep in ((file, keep) for file in files for keep in (False, True)):
    if marks.exists():
        marks.write_text("5")
    home, before, begin = folder / "home", peak_bytes(), time.monotonic()
    outcome, message = "imported", ""
    try:
        import_gguf(file, home / "out", dtype="float32", keep_quantized=keep)
    except LabkitError as error:
        outcome, message = "refused", str(error)
    except BaseException as error:
        outcome, message = type(error).__name__, str(error)
    report = {"keep": keep, "outcome": outcome, "message": message, "seconds": time.monotonic() - begin}
    report |= {"bytes": peak_bytes() - before, "left": [p.name for p in home.rglob("*")]}
    print(json.dumps(report), flush=True)
    shutil.rmtree(home, ignore_errors=True)
"""


def run_child(folder: Path) -> list[dict[str, Any]]:
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "-c", CHILD, str(folder)]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, cwd=root, env=environ, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("seed", [20261])
def test_every_damaged_file_is_one_message(tmp_path: Path, seed: int) -> None:
    made = damages(tmp_path, seed)
    assert len(made) >= 200
    (tmp_path / "files").mkdir()
    for index, damage in enumerate(made):
        damage.write(tmp_path / "files" / f"{index:04}.gguf")
    reports = run_child(tmp_path)
    assert [report["keep"] for report in reports] == [False, True] * len(made)
    wrong = [(made[at // 2].name, report) for at, report in enumerate(reports) if not is_right(report)]
    assert not wrong, "\n".join(f"{name}: {report}" for name, report in wrong)


def is_right(report: dict[str, Any]) -> bool:
    lines = report["message"].splitlines()
    one_message = 1 <= len(lines) <= 4 and all(line.isprintable() and len(line) < 2000 for line in lines)
    cheap = report["seconds"] < 5 and report["bytes"] < 500_000_000
    return report["outcome"] == "refused" and one_message and cheap and not report["left"]


def test_what_the_texts_say_leads_nowhere(tmp_path: Path) -> None:
    def named(writer: Any, _: Any) -> None:
        writer.add_name("../../escaped")
        writer.add_string("general.basename", "/tmp/escaped")
        writer.add_string("tokenizer.chat_template.../../escaped", "x")

    (tmp_path / "a" / "b").mkdir(parents=True)
    home = tmp_path / "a" / "b" / "home"
    file = write_gguf(tmp_path / "t.gguf", edit=named)
    before = sorted(tmp_path.rglob("*"))
    target = import_gguf(file, home / "out", dtype="float32")
    new = set(tmp_path.rglob("*")) - set(before) - {home}
    assert {p.name for p in target.iterdir()} >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert all(p.is_relative_to(target) for p in new)


@pytest.mark.parametrize("name", ["folder.gguf", "pipe.gguf", "absent.gguf"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.gguf").mkdir()
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(
        ModelUnavailable, match=r"complete GGUF file was needed: \w+\.gguf\n.*(not a|no such) file"
    ):
        import_gguf(tmp_path / name, tmp_path / "home" / "out", dtype="float32")
    assert not (tmp_path / "home").exists()
