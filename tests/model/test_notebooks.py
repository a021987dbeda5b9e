"""Every shipped notebook runs from top to bottom and holds no long function."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.shipped import NOTEBOOKS

FOLDER = Path(__file__).parents[2] / "notebooks"
MAX_FUNCTION_LINES = 10


def code_cells(path: Path) -> list[dict]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_functions_are_short(name: str) -> None:
    for cell in code_cells(FOLDER / name):
        for node in ast.walk(ast.parse("".join(cell["source"]))):
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < MAX_FUNCTION_LINES, node.name


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_runs(name: str, smollm2_path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", str(FOLDER / name)]
    done = subprocess.run(
        [*command, "--output-dir", str(tmp_path), "--ExecutePreprocessor.timeout=280"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    cells = code_cells(tmp_path / name)
    said = [o.get("text", "") for c in cells for o in c["outputs"] if o.get("name") == "stderr"]
    assert not said, "a notebook should run without warnings"
