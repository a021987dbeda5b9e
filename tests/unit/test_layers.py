"""The import contracts name every folder that is there, and they bite."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import labkit

ROOT = Path(labkit.__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS: list[dict[str, Any]] = PROJECT["tool"]["importlinter"]["contracts"]
METHODS = tuple(
    module.removeprefix("labkit.").replace(".", "/") + ".py"
    for contract in CONTRACTS
    if contract["type"] == "independence"
    for module in contract["modules"]
)
LAYERS = (
    "cli",
    "lab",
    "bench",
    "evals",
    "engine",
    "quant",
    "kv",
    "schedule",
    "model",
    "numerics",
    "plan",
    "store",
    "frontier",
    "plots",
    "core",
)


def contract(part_of_name: str) -> dict[str, Any]:
    return next(c for c in CONTRACTS if part_of_name in c["name"])


def test_contracts_name_every_folder_that_is_there() -> None:
    folders = {path.parent.name for path in (ROOT / "labkit").glob("*/__init__.py")}
    pure = {f"labkit.{name}" for name in folders & {"core", "plan", "schedule", "store", "frontier"}}
    producers = {
        f"labkit.{name}" for name in folders & {"engine", "quant", "bench", "evals", "trace", "serve"}
    }
    assert pure <= set(contract("no mlx")["source_modules"])
    assert producers <= set(contract("the store")["source_modules"])


def test_methods_are_independent_once_there_are_two() -> None:
    names = ("autoregressive", "speculative", "diffusion")
    methods = {f"labkit.engine.{name}" for name in names if (ROOT / "labkit/engine" / f"{name}.py").exists()}
    independent = {m for c in CONTRACTS if c["type"] == "independence" for m in c["modules"]}
    assert len(methods) < 2 or methods <= independent


@pytest.mark.parametrize(
    ("module", "statement", "broken"),
    [
        ("core/x.py", "x = 1", None),
        ("core/x.py", "import mlx.core", "import no mlx"),
        ("bench/statistics.py", "from labkit.kv import x", "import no mlx"),
        ("model/x.py", "from labkit.engine import x", "Layers"),
        ("bench/x.py", "from labkit.evals import x", "Layers"),
        ("engine/x.py", "from labkit.store import x", "only lab and above use the store"),
        ("quant/x.py", "from labkit.store import x", "only lab and above use the store"),
        ("quant/x.py", "from labkit.engine import x", "Layers"),
        ("schedule/x.py", "import mlx_lm", "import no mlx"),
        ("lab/x.py", "import matplotlib.pyplot", "Only plots"),
        ("cli/x.py", "import IPython", "Only widgets"),
        ("stray/__init__.py", "", "Layers"),
    ],
)
def test_contracts_bite(tmp_path: Path, module: str, statement: str, broken: str | None) -> None:
    for name in LAYERS:
        (tmp_path / "labkit" / name).mkdir(parents=True)
        (tmp_path / "labkit" / name / "__init__.py").touch()
        (tmp_path / "labkit" / name / "x.py").touch()
    named = [name for c in CONTRACTS for name in c.get("source_modules", ()) if name.count(".") > 1]
    statistics = [f"{name.removeprefix('labkit.').replace('.', '/')}.py" for name in named]
    for path in ("__init__.py", *statistics, *METHODS):
        (tmp_path / "labkit" / path).touch()
    (tmp_path / "labkit/kv/x.py").write_text("import mlx.core\n")
    (tmp_path / "labkit" / module).parent.mkdir(exist_ok=True)
    (tmp_path / "labkit" / module).write_text(f"{statement}\n")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    code = "from importlinter.cli import lint_imports_command as run; run(['--no-logo', '--no-cache'])"
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    said = " ".join(answer.stdout.split())
    assert answer.returncode == (1 if broken else 0), said
    assert not broken or broken in said
