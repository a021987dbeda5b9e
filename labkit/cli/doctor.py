"""`labkit doctor`: what this machine has and lacks, and the line that mends each."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from labkit.cli.console import Console
from labkit.cli.root import Root

if TYPE_CHECKING:
    from labkit.lab.checkup.line import Line
    from labkit.lab.doctor import Report

Json = Annotated[bool, typer.Option("--json", help="Print JSON: no host or user name is in it.")]
LEVEL_WIDTH, NAME_WIDTH = 11, 22
NARROWEST = 60
_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red", "absent": "dim"}


def doctor(root: Root = Path(), as_json: Json = False) -> None:
    """Look at backend, BLAS, versions, models, disk, permissions, the lab and whether this machine is quiet.

    Ends with exit code 1 where something would stop or falsify a run, with 0 where there are warnings only.
    """
    from labkit.lab.doctor import examine

    report = examine(root, datetime.now(UTC).date())
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        _print(report, Console(highlight=False))
    if not report.ok:
        raise typer.Exit(1)


def _print(report: Report, console: Console) -> None:
    width = max(NARROWEST, console.width)
    for section in report.sections():
        lines = [line for line in report.lines if line.section == section]
        console.print(Text(section, style="bold"))
        for row in _rows(lines, width):
            console.print(row, soft_wrap=True)
        console.print()
    console.print(_summary(report), style="green" if report.ok else "bold red")


def _rows(lines: list[Line], width: int) -> Iterator[Text]:
    """Level, name and text; what mends a line stands below it. Absent things share one row."""
    absent = [line.name for line in lines if line.level == "absent"]
    for line in lines:
        if line.level != "absent" or len(absent) == 1:
            yield from _row(line.level, line.name, line.text, width, "")
            yield from _row("", "mend:", line.mend, width, "bold") if line.mend else ()
    if len(absent) > 1:
        yield from _row("absent", "not on this machine", ", ".join(absent), width, "dim")


def _row(level: str, name: str, text: str, width: int, style: str) -> Iterator[Text]:
    """One row, its text folded at words below itself; a name that is too wide goes on a line of its own."""
    indent = LEVEL_WIDTH + NAME_WIDTH
    folded = textwrap.wrap(text, width - indent, break_on_hyphens=False) or [""]
    head = Text.assemble(("  " + level).ljust(LEVEL_WIDTH), (name.ljust(NAME_WIDTH), style))
    head.stylize(_STYLES.get(level, ""), 0, LEVEL_WIDTH)
    if len(name) >= NAME_WIDTH:
        yield head
        head = Text(" " * indent)
    yield head.append(folded[0], style)
    for rest in folded[1:]:
        yield Text(" " * indent).append(rest, style)


def _summary(report: Report) -> str:
    quiet = {True: "This machine is quiet.", False: "This machine is not quiet.", None: ""}[report.quiet]
    problems, warnings = report.count("problem"), report.count("warning")
    counted = [text for text in (_counted(problems, "problem"), _counted(warnings, "warning")) if text]
    told = " and ".join(counted) or "Nothing to mend"
    stops = "" if problems else ", nothing that stops a run" if warnings else ""
    return f"{told}{stops}. {quiet}".strip()


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}" if count else ""
