"""`labkit verify`: a model against mlx-lm, as a table of checks and its badge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Column, Table

from labkit.cli.complete import complete_model_names
from labkit.cli.console import Console
from labkit.cli.progress import ProgressSink
from labkit.cli.root import Root

if TYPE_CHECKING:
    from labkit.lab.verifying.verification import Verification

_STYLES = {"passed": "green", "failed": "bold red", "void": "yellow", "skipped": "dim", "open": "yellow"}

ModelName = Annotated[
    str,
    typer.Argument(
        help="A bundled name, a model directory, a .gguf file or a hub id org/name.",
        autocompletion=complete_model_names,
    ),
]


def verify(
    model: ModelName,
    pairs: Annotated[
        int, typer.Option("--pairs", help="Pairs of visits in the paired race, at least 8.")
    ] = 32,
    root: Root = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that MODEL generates what mlx-lm does, bit for bit and as fast; give or withdraw its badge.

    Ends with exit code 1 where no badge was earned. The badge lies in results/verified/; another version of
    the model, labkit, mlx or mlx-lm, or another machine class, loses it.
    """
    from labkit.lab.verifying.verify import verify as verify_model

    with ProgressSink(Console(stderr=True)) as sink:
        found = verify_model(model, pairs=pairs, root=root, sink=sink)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        print_verification(Console(highlight=False), found)
    if not found.verified:
        raise typer.Exit(1)


def print_verification(console: Console, found: Verification) -> None:
    """The checks in a table, the result in a sentence, and where record and badge lie."""
    console.print(f"[bold]{escape(found.model)}[/bold] against mlx-lm, fingerprint {found.fingerprint[:12]}")
    console.print(_table(found))
    console.print(found.sentence(), markup=False)
    for label, path in (("record", found.record), ("badge", found.path)):
        if path is not None:
            console.print(f"{label + ':':<8}{path}", soft_wrap=True, markup=False)


def _table(found: Verification) -> Table:
    table = Table(Column("check", no_wrap=True), Column("status", no_wrap=True), "found", box=SIMPLE_HEAD)
    for check in found.checks:
        style = _STYLES[check.status]
        table.add_row(escape(check.name), f"[{style}]{check.status}[/{style}]", escape(check.found))
    return table
