"""Packaging, pins, sizes and notebooks hold what the house promises."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from shutil import which

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import labkit
from tests.unit.shipped import NOTEBOOKS
from tools import check_size
from tools.check_outputs import with_outputs

ROOT = Path(labkit.__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DEPENDENCIES = [Requirement(line) for line in PROJECT["project"]["dependencies"]]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def test_constraints_are_names_and_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[\w.!+]+", line)] == []
    assert len(pins()) == len(lines)
    assert "torch" not in pins()


@pytest.mark.parametrize("requirement", DEPENDENCIES, ids=lambda r: r.name)
def test_every_dependency_is_pinned_within_its_range(requirement: Requirement) -> None:
    assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)])


def test_pins_serve_every_supported_python() -> None:
    short = []
    for distribution in metadata.distributions():
        needed = Requirement(f"x{distribution.metadata.json.get('requires_python', '')}").specifier
        pinned = pins().get(canonicalize_name(distribution.name)) == distribution.version
        if pinned and not all(needed.contains(python) for python in ("3.11.0", "3.12.0", "3.13.0")):
            short.append(f"{distribution.name} {needed}")
    assert short == []


def test_every_third_party_import_is_declared() -> None:
    owners = metadata.packages_distributions()
    declared = {canonicalize_name(requirement.name) for requirement in DEPENDENCIES}
    undeclared = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / "labkit").rglob("*.py")
        for name in imported_by(path)
        if name not in sys.stdlib_module_names and name != "labkit"
        if declared.isdisjoint(canonicalize_name(owner) for owner in owners.get(name, ()))
    }
    assert undeclared == set()


def imported_by(path: Path) -> set[str]:
    """Top-level names of what a file imports anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_sizes_are_measured(tmp_path: Path) -> None:
    (tmp_path / "fits.py").write_text("x = 1\n" * 500)
    (tmp_path / "long.py").write_text("x = 1\n" * 501)
    (tmp_path / "function.py").write_text("def f():\n" + "    x = 1\n" * 40)
    assert [Path(line.partition(":")[0]).name for line in check_size.oversized(tmp_path)] == [
        "function.py",
        "long.py",
    ]


def test_shipped_notebooks_hold_no_outputs() -> None:
    found = list(with_outputs(ROOT / "notebooks" / name for name in NOTEBOOKS))
    assert not found, f"mend: .venv/bin/jupyter nbconvert --clear-output --inplace FILE, for {found}"


@pytest.mark.skipif(which("git") is None, reason="git is needed to ask it")
def test_the_shipped_notebooks_are_those_that_git_holds() -> None:
    """By their numbers: a notebook that somebody makes and commits beside them is not one of them."""
    listed = subprocess.run(
        ["git", "ls-files", "notebooks/[0-9][0-9]_*.ipynb"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode or not listed.stdout:
        pytest.skip("this is no checkout")
    assert tuple(Path(line).name for line in listed.stdout.splitlines()) == NOTEBOOKS
