"""Experiment files that hang, end or print into the process that loads them: told, and the others load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from labkit.lab.deciding.ledger import read_files
from labkit.lab.file_loader import load_files
from tests.unit.command_line import labkit
from tests.unit.decided_lab import EXPERIMENT, open_lab

# file -> its text, and what is said of it; empty where it loads.
HOSTILE = {
    "b_exit": ("import os\nos._exit(0)\n", "it ends the process that loads it"),
    "c_interrupt": ("raise KeyboardInterrupt\n", "KeyboardInterrupt"),
    "d_exit": ("import sys\nsys.exit(0)\n", "SystemExit"),
    "e_deep": ("def f(): f()\nf()\n", "RecursionError"),
    "f_print": ('print("HELLO")\n' + EXPERIMENT, ""),
    "g_close": ("import os\nos.close(1)\nos.close(2)\n" + EXPERIMENT, ""),
    "h_elsewhere": ('import os\nos.chdir("/")\n' + EXPERIMENT, ""),
    "i_asks": ("input()\n", "EOFError"),
    "j_segfault": ("import ctypes\nctypes.string_at(0)\n", "it ends the process that loads it"),
    "k_text": ('class S(str):\n    """Text."""\n' + EXPERIMENT.replace('"null-ab"', 'S("null-ab")'), ""),
    "l_chunk": (EXPERIMENT.replace("bytes_per_token=40", 'x", prefill_chunk="'), "prefill_chunk"),
    "m_good": (EXPERIMENT, ""),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, (text, _) in HOSTILE.items():
        open_lab(tmp_path, text, f"{name}.py")
    monkeypatch.chdir(tmp_path)
    return Path("experiments")


def test_every_file_is_loaded_or_told_whatever_the_others_do(folder: Path) -> None:
    found = read_files(folder)
    assert [file.path.stem for file in found] == list(HOSTILE)
    for file in found:
        said = HOSTILE[file.path.stem][1]
        assert said in file.problem, file
        assert (file.experiment is None) == bool(said)
        assert len(file.source_hash) == 16
        assert file.name == (file.path.stem if said else "null-ab")


def test_a_file_that_hangs_is_ended_and_the_next_one_is_loaded(tmp_path: Path) -> None:
    hanging, after = tmp_path / "a.py", tmp_path / "b.py"
    hanging.write_text("while True: pass\n")
    after.write_text(EXPERIMENT)
    bad, good = load_files([hanging, after], limit_s=8.0)
    assert bad.problem == "a.py cannot be loaded; got it does not load within 8 s"
    assert good.experiment is not None
    assert good.experiment.name == "null-ab"


def test_listings_and_checks_print_their_answer_alone(tmp_path: Path) -> None:
    for name in ("b_exit", "f_print", "g_close"):
        open_lab(tmp_path, HOSTILE[name][0].replace("null-ab", name.replace("_", "-")), f"{name}.py")
    rows = json.loads(labkit("experiments", "--json", "--root", tmp_path).out)
    assert [row["name"] for row in rows] == ["b_exit", "f-print", "g-close"]
    checked = labkit("check", "--json", "--root", tmp_path)
    assert checked.code == 1
    (fault,) = json.loads(checked.out)["faults"]
    assert "it ends the process that loads it" in fault["problem"]


def test_what_a_file_prints_is_no_part_of_an_answer(tmp_path: Path) -> None:
    open_lab(tmp_path, HOSTILE["f_print"][0])
    ended = labkit("plan-run", tmp_path / "experiments" / "null-ab.py", "--pilot", "3")
    assert "HELLO" not in ended.out
    assert "HELLO" in ended.err
