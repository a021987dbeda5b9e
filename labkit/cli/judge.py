"""`labkit judge`: the outcome that the decision procedure gives an experiment, and why. Decides nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Column, Table

from labkit.cli.complete import complete_decidable_names
from labkit.cli.console import Console
from labkit.cli.root import Root

if TYPE_CHECKING:
    from labkit.lab.deciding.judgement import Judgement

Name = Annotated[
    str,
    typer.Argument(
        help="The name of an open or promoted experiment.", autocompletion=complete_decidable_names
    ),
]


def judge(
    name: Name,
    root: Root = Path(),
    record: Annotated[
        str | None,
        typer.Option("--record", help="The record to judge; by default the newest complete one."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what the decision procedure makes of an experiment, by which rule, and what to do next.

    Parity, then speed and size, then KL as a screen, then the frozen suite. Changes nothing.
    """
    from labkit.lab.deciding.judgement import judge as look

    judgement = look(name, root=root, record=record)
    if as_json:
        typer.echo(json.dumps(judgement.to_json(), indent=2))
        return
    console = Console(highlight=False)
    console.print(f"[bold]{escape(judgement.name)}[/bold]: {escape(judgement.outcome)}")
    lines = (
        ("rule", f"{judgement.rule}: {judgement.why}"),
        ("were it not", judgement.otherwise),
        ("record", judgement.record),
        ("next", judgement.next_step),
    )
    for label, text in lines:
        if text:
            console.print(f"{label + ':':<13}{text}", markup=False, soft_wrap=True)
    console.print(_findings(judgement))
    console.print(_trail(judgement))


def _findings(judgement: Judgement) -> Table:
    table = Table(Column("step", no_wrap=True), Column("found", no_wrap=True), "seen", box=SIMPLE_HEAD)
    steps = set[str]()
    for found in judgement.findings:
        step = "" if found.step in steps else found.step
        steps.add(found.step)
        table.add_row(step, f"{found.part}: {found.found}", escape(found.detail))
    return table


def _trail(judgement: Judgement) -> Table:
    table = Table(Column("rule looked at", no_wrap=True), "saw", "fired", box=SIMPLE_HEAD)
    for looked in judgement.trail:
        saw = ", ".join(f"{part} {word}" for part, word in looked.saw)
        table.add_row(looked.rule, saw, "yes" if looked.fired else "no")
    return table
