"""Importing labkit is cheap, and every public name is where `labkit.__init__` says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import labkit

ROOT = Path(labkit.__file__).parent.parent
HEAVY = ("mlx", "mlx_lm", "matplotlib", "numpy", "pandas", "scipy", "duckdb", "transformers", "rich", "typer")


def loaded_by(statement: str) -> set[str]:
    """Top-level names of the modules that a fresh interpreter holds after a statement."""
    code = f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return set(answer.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import labkit",
        "import labkit; labkit.Arm, labkit.Workload, labkit.prepare",
        "import labkit.model.backend",
    ],
)
def test_import_loads_nothing_heavy(statement: str) -> None:
    assert loaded_by(statement).isdisjoint(HEAVY)


@pytest.mark.parametrize("name", labkit.__all__)
def test_public_names_resolve(name: str) -> None:
    assert getattr(labkit, name) is not None
    assert name in dir(labkit)


def test_every_public_name_has_a_home() -> None:
    assert set(labkit._HOMES) | {"__version__"} == set(labkit.__all__)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        labkit.laod  # noqa: B018
