"""Damaged model directories: each refused with one message, soon, in little memory, and left as it is.

What can be told is told: a flipped bit of a weight that stays a finite number makes a valid file of another
model, and only a fingerprint taken before would tell.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.numerics.damaged_directory import CASES
from tests.numerics.tiny_directory import write_directory

BATCHES = 6
# The limits of the issue: 5 s and 500 MB for each.
SECONDS, MEBIBYTES = 5.0, 500.0
ROOT = Path(__file__).parents[2]


def refused(sound: Path, damaged: list[Path], home: Path) -> list[dict[str, Any]]:
    """Load and show the directories in one child, which may take as long as all of them together."""
    command = [sys.executable, "-m", "tests.numerics.refused_in_child", str(sound), *map(str, damaged)]
    environ = {**os.environ, "LABKIT_HOME": str(home), "HF_HUB_OFFLINE": "1", "COLUMNS": "200"}
    limit = 60 + 2 * SECONDS * len(damaged)
    done = subprocess.run(
        command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False, timeout=limit
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def problems(row: dict[str, Any]) -> list[str]:
    """What is wrong with how a directory was refused."""
    found = [f"{way}: {row[way]}" for way in ("load", "show") if row[way][0] != "ModelUnavailable"]
    for way in ("load", "show"):
        lines = row[way][1].splitlines()
        if (
            len(lines) > 4
            or max(map(len, lines), default=0) > 1000
            or not row[way][1].replace("\n", "").isprintable()
        ):
            found.append(f"{way}: not one message: {row[way][1]!r}")
        if row[f"{way}_s"] >= SECONDS:
            found.append(f"{way} took {row[f'{way}_s']:.1f} s")
    if row["peak_mib"] >= MEBIBYTES:
        found.append(f"{row['peak_mib']:.0f} MiB")
    return found + ([] if row["untouched"] else ["the directory was written to"])


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 200
    assert len({name for name, _, _ in CASES}) == len(CASES)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_damaged_directory_is_refused(tmp_path: Path, batch: int) -> None:
    chosen = CASES[batch::BATCHES]
    folders = []
    for index, (_, write, damage) in enumerate(chosen):
        folders.append(write(tmp_path / f"case-{index}"))
        damage(folders[-1])
    rows = refused(write_directory(tmp_path / "sound"), folders, tmp_path / "home")
    wrong = {name: found for (name, _, _), row in zip(chosen, rows, strict=True) if (found := problems(row))}
    assert wrong == {}
    assert not (tmp_path / "home").exists()
    if target := os.environ.get("LABKIT_DAMAGE_REPORT"):
        with Path(target).open("a") as stream:
            for (name, _, _), row in zip(chosen, rows, strict=True):
                stream.write(json.dumps({"name": name, **row}) + "\n")
