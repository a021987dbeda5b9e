"""What commands print where: terminals, pipes, NO_COLOR, FORCE_COLOR, dumb and narrow ones; exit codes."""

from __future__ import annotations

import inspect
import io
import itertools
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.table import Column, Table
from typer import rich_utils
from typer.main import get_command

from labkit.cli import main as process
from labkit.cli.app import app
from labkit.cli.commands import Interrupted
from labkit.cli.console import READER_GONE, Console
from labkit.core.errors import LabkitError
from tests.unit.command_line import EXPERIMENT, labkit, make_lab

PROGRAM = str(Path(sys.executable).parent / "labkit")
DOCS = Path(__file__).parents[2] / "docs"
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7]|38;[\d;]+)m")
NAME = "a-name-of-sixty-four-characters-that-no-table-has-ever-room-for"
CLAIM = "incomprehensibilities of a counterrevolutionary electroencephalogram"
# Whoever runs the tests may have set any of them.
UNSET = ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


def environ(folder: Path, **stated: str) -> Mapping[str, str]:
    held = {k: v for k, v in os.environ.items() if k not in UNSET}
    return {**held, "TERM": "xterm-256color", "TMPDIR": str(folder), "LABKIT_HOME": str(folder), **stated}


def piped(lab: Path, *arguments: str, **stated: str) -> subprocess.CompletedProcess[str]:
    """A command with pipes for stdout and stderr."""
    return subprocess.run(
        [PROGRAM, *arguments, "--root", str(lab)],
        env=environ(lab, **stated),
        capture_output=True,
        text=True,
        check=False,
    )


def at_a_terminal(lab: Path, *arguments: str, **stated: str) -> str:
    """What a command sends to a terminal, from stdout and stderr together."""
    ours, theirs = pty.openpty()
    command = [PROGRAM, *arguments, "--root", str(lab)]
    child = subprocess.Popen(command, env=environ(lab, **stated), stdout=theirs, stderr=theirs)
    os.close(theirs)
    parts: list[bytes] = []
    while select.select([ours], [], [], 60)[0]:
        try:
            parts.append(os.read(ours, 1 << 16))
        except OSError:  # the other end is closed
            break
    os.close(ours)
    assert child.wait(60) == 0
    return b"".join(parts).decode()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab with one expired experiment, which is shown in red, and one that runs."""
    folder = make_lab(tmp_path_factory.mktemp("output") / "lab", EXPERIMENT, "mine.py")
    old = EXPERIMENT.replace("null-ab", NAME).replace("2099", "2001").replace("less memory", CLAIM)
    (folder / "experiments" / f"{NAME}.py").write_text(old)
    return folder


def test_a_pipe_gets_no_escape_code_and_no_bar(lab: Path) -> None:
    for arguments in (("experiments",), ("run", str(lab / "experiments" / "mine.py"))):
        done = piped(lab, *arguments)
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout + done.stderr
        assert "\r" not in done.stderr and "━" not in done.stderr
    assert "visits" in done.stderr


def test_force_color_colours_a_pipe_and_draws_no_bar_in_it(lab: Path) -> None:
    assert COLOUR.search(piped(lab, "experiments", FORCE_COLOR="1").stdout)
    done = piped(lab, "run", str(lab / "experiments" / "mine.py"), FORCE_COLOR="1")
    assert done.returncode == 0, done.stderr
    assert COLOUR.search(done.stdout)
    assert "━" not in done.stderr and "\x1b[?25" not in done.stderr


def test_no_color_wins_over_force_color(lab: Path) -> None:
    assert not COLOUR.search(piped(lab, "experiments", FORCE_COLOR="1", NO_COLOR="1").stdout)


def test_a_terminal_gets_colours_and_bars(lab: Path) -> None:
    assert COLOUR.search(at_a_terminal(lab, "experiments"))
    assert "━" in at_a_terminal(lab, "run", str(lab / "experiments" / "mine.py"))


def test_no_color_is_honoured_at_a_terminal(lab: Path) -> None:
    assert not COLOUR.search(at_a_terminal(lab, "experiments", NO_COLOR="1"))


def test_a_dumb_terminal_gets_lines(lab: Path) -> None:
    assert "\x1b" not in at_a_terminal(lab, "experiments", TERM="dumb")
    said = at_a_terminal(lab, "run", str(lab / "experiments" / "mine.py"), TERM="dumb")
    assert "\x1b" not in said and "━" not in said
    assert "visits ..." in said


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_cell_is_cut_however_narrow(lab: Path, columns: int) -> None:
    done = piped(lab, "experiments", COLUMNS=str(columns))
    assert "…" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= columns
    # Folded cells read downwards: every letter of the name is there as often as it should be.
    shown = re.sub(r"\s", "", done.stdout)
    for letter in set(NAME + CLAIM) - {" "}:
        assert shown.count(letter) >= (NAME + CLAIM).count(letter), letter


def test_a_table_keeps_unbroken_columns_where_there_is_room() -> None:
    def shown(width: int) -> str:
        table = Table(Column("a", no_wrap=True), "b", box=None)
        table.add_row("never broken", "some words that go on and on")
        out = io.StringIO()
        Console(file=out, width=width).print(table)
        return out.getvalue()

    assert "never broken" in shown(40)
    assert "…" not in shown(12)
    assert "".join(shown(12).split()).count("r") == 3  # never, broken, words


@pytest.mark.parametrize("arguments", [["experiments"], ["experiments", "--json"]])
def test_a_reader_that_goes_early_is_no_failure_of_ours(lab: Path, arguments: list[str]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [PROGRAM, *arguments, "--root", str(lab)],
        env=environ(lab), stdout=theirs, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(theirs)
    assert (done.returncode, done.stderr) == (READER_GONE, "")


def test_help_into_a_closed_pipe_is_quiet() -> None:
    done = subprocess.run(
        f"set -o pipefail; '{PROGRAM}' --help | head -1", shell=True, executable="/bin/bash",
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""


def leaves(command: Any, *path: str) -> list[tuple[str, ...]]:
    """The path of every command and group, to say `--help` to."""
    members = getattr(command, "commands", {})
    return [path, *(leaf for name in members for leaf in leaves(members[name], *path, name))]


@pytest.mark.parametrize("path", leaves(get_command(app)), ids=" ".join)
def test_help_breaks_its_lines_only_where_80_columns_end(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rich_utils, "MAX_WIDTH", 80)
    shown = labkit(*path, "--help").out.partition("╭")[0].split("\n")
    for line, after in itertools.pairwise(line.strip() for line in shown):
        if line and after:
            assert len(line) + 1 + len(after.split()[0]) > 78, line


def documented_codes(text: str) -> set[int]:
    return {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}


def test_the_exit_codes_are_those_documented(tmp_path: Path) -> None:
    refused = labkit("run", tmp_path / "nothing.py").code
    usage = labkit("nonsense").code
    made = {labkit("--version").code, refused, usage, Interrupted.exit_code, READER_GONE}
    assert LabkitError.exit_code == refused == 1
    assert documented_codes(inspect.getdoc(process) or "") == made == {0, 1, 2, 130, 141}


def test_the_page_of_exit_codes_is_made_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "_extensions"))
    generated = __import__("generated")
    source = [(DOCS / "guide" / "scripting.md").read_text(encoding="utf-8")]
    assert documented_codes(source[0]) == set()
    generated._fill_in(None, "guide/scripting", source)
    assert documented_codes(source[0]) == documented_codes(inspect.getdoc(process) or "")


def test_variables_of_the_page_are_those_of_the_code() -> None:
    page = (DOCS / "guide" / "scripting.md").read_text(encoding="utf-8")
    package = Path(process.__file__).parents[1]
    used = set[str]()
    for path in package.rglob("*.py"):
        used |= set(re.findall(r"\bLABKIT_[A-Z_]+\b", path.read_text(encoding="utf-8")))
    assert used == set(re.findall(r"`(LABKIT_[A-Z_]+)`", page))
