"""CONTRIBUTING's examples are real: applied to a copy of the package, checked and tested there."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools import check_size

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(python file=(\S+)|diff)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MAX_LINES = 40
KINDS = ("a KV scheme", "a method", "a metric", "a policy", "a quantizer", "an experiment")


@dataclass(frozen=True)
class Contribution:
    """A section: whole files by their path, and diffs of what is there."""

    files: dict[str, str]
    diffs: tuple[str, ...]

    def tests(self) -> list[str]:
        return [path for path in self.files if path.startswith("tests/")]

    def code_lines(self) -> int:
        """Lines of code that are written for it: without its test, empty lines, comments and docstrings."""
        written = [text for path, text in self.files.items() if path not in self.tests()]
        added = [
            "\n".join(line[1:] for line in diff.splitlines() if re.match(r"\+(?!\+\+ )", line))
            for diff in self.diffs
        ]
        return sum(map(count_code, [*written, *added]))


def contribution(kind: str) -> Contribution:
    section = PAGE.partition(f"\n## Add {kind}\n")[2].partition("\n## ")[0]
    blocks = BLOCK.findall(section)
    files = {path: text for _, path, text in blocks if path}
    return Contribution(files, tuple(text for _, path, text in blocks if not path))


def count_code(text: str) -> int:
    lines = {
        n for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.strip().startswith("#")
    }
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return len(lines)  # parts of a diff
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def apply_diff(root: Path, diff: str) -> None:
    """Apply a diff whose hunks give no line numbers; each must fit in exactly one place."""
    for part in re.split(r"^--- a/\S+\n", diff, flags=re.MULTILINE)[1:]:
        head, *hunks = re.split(r"^@@.*\n", part, flags=re.MULTILINE)
        path = root / head.strip().removeprefix("+++ b/")
        text = path.read_text(encoding="utf-8")
        for hunk in hunks:
            lines = hunk.splitlines()
            before = "".join(f"{line[1:]}\n" for line in lines if line[:1] in " -")
            after = "".join(f"{line[1:]}\n" for line in lines if line[:1] in " +")
            assert text.count(before) == 1, f"{path.name}: a hunk fits {text.count(before)} times:\n{hunk}"
            text = text.replace(before, after)
        path.write_text(text, encoding="utf-8")


def apply(root: Path, made: Contribution) -> None:
    for path, text in made.files.items():
        assert not (root / path).exists(), path
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    for diff in made.diffs:
        apply_diff(root, diff)


def copy_of_the_package(folder: Path) -> Path:
    """What a contributor has in hand, without results, caches and .venv."""
    unwanted = shutil.ignore_patterns("__pycache__", "*.png", "results", ".*")
    for name in ("labkit", "tests", "tools", "experiments"):
        shutil.copytree(ROOT / name, folder / name, ignore=unwanted)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def run_in(folder: Path, *command: str) -> str:
    """Run a program there, with the copy before the installed package; its output. It must succeed."""
    environ = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(folder)}
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_short(kind: str) -> None:
    assert 0 < contribution(kind).code_lines() < MAX_LINES


@pytest.mark.parametrize("kind", KINDS)
def test_it_works_in_a_copy_of_the_package(kind: str, tmp_path: Path) -> None:
    made, copy = contribution(kind), copy_of_the_package(tmp_path)
    assert made.tests()
    apply(copy, made)
    where = run_in(copy, sys.executable, "-c", "import labkit; print(labkit.__file__)")
    assert where.strip() == str(copy / "labkit" / "__init__.py")
    done = run_in(copy, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *made.tests())
    assert re.search(r"\d+ passed", done), done
    assert not re.search(r"skipped|xfailed", done), done


def test_all_of_them_together_pass_the_checks_of_the_house(tmp_path: Path) -> None:
    copy, binaries = copy_of_the_package(tmp_path), Path(sys.executable).parent
    touched: set[str] = set()
    for made in map(contribution, KINDS):
        apply(copy, made)
        touched |= set(made.files) | set(
            re.findall(r"^\+\+\+ b/(\S+\.py)$", "".join(made.diffs), re.MULTILINE)
        )
    run_in(copy, str(binaries / "ruff"), "check", "--no-cache", *sorted(touched))
    run_in(copy, str(binaries / "ruff"), "format", "--no-cache", "--check", *sorted(touched))
    oversized = [line.partition(":")[0] for line in check_size.oversized(copy / "labkit")]
    assert touched.isdisjoint(Path(path).relative_to(copy).as_posix() for path in oversized)
    run_in(copy, str(binaries / "lint-imports"), "--no-logo", "--no-cache")


def test_a_hunk_that_does_not_fit_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    for line in ("x = 1", "x = 2"):
        with pytest.raises(AssertionError, match=r"a hunk fits [02] times"):
            apply_diff(tmp_path, f"--- a/a.py\n+++ b/a.py\n@@\n-{line}\n+y = 1\n")


def test_every_commands_target_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`?make (\w+)", PAGE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
