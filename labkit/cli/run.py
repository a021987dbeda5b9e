"""`labkit run`, `plan-run` and `experiments`: measure an experiment, plan one, list them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from labkit.cli.progress import ProgressSink
from labkit.cli.report import sentence, verdict_table

Root = Annotated[Path, typer.Option("--root", help="The lab: the folder with experiments/ and results/.")]
File = Annotated[Path, typer.Argument(help="An experiment file, such as experiments/kv8-at-256.py.")]
Pairs = Annotated[
    int | None, typer.Option("--pairs", min=1, help="Pairs of visits (verdicts need at least 8).")
]


def run(file: File, root: Root = Path(), pairs: Pairs = None) -> None:
    """Run the paired experiment of FILE and write one record."""
    from labkit.cli.pictures import draw_verdicts
    from labkit.lab.run import run as run_experiment

    console = Console()
    with ProgressSink(Console(stderr=True)) as sink:
        finished = run_experiment(file, root=root, pairs=pairs, sink=sink)
    console.print(verdict_table(finished.record))
    console.print(sentence(finished.record))
    picture, _ = draw_verdicts(root, finished.record.run_id, finished.record.experiment["name"])
    console.print(f"record:  {finished.path}\npicture: {picture}", soft_wrap=True, highlight=False)


def plan_run(
    file: File,
    pilot: Annotated[int, typer.Option("--pilot", min=3, help="Pairs of visits in the pilot.")] = 4,
) -> None:
    """Say how many pairs the margins of FILE need, from a short pilot. Writes no record."""
    from labkit.lab.plan_run import plan_from_file

    console = Console()
    with ProgressSink(Console(stderr=True)) as sink:
        planned = plan_from_file(file, pilot_pairs=pilot, sink=sink)
    table = Table(title=f"pairs needed by {planned.experiment} (pilot of {planned.pilot_pairs} pairs)")
    for column in ("axis", "goal", "margin", "SD of a pair (upper 80%)", "effect seen", "pairs", "why"):
        table.add_column(column)
    for axis in planned.axes:
        needed = "-" if axis.pairs is None else str(axis.pairs)
        margin, sd, effect = f"{axis.margin:.0%}", f"{axis.sd:.2%}", f"{axis.effect:+.1%}"
        table.add_row(axis.title, axis.goal, margin, sd, effect, needed, axis.reason)
    console.print(table)
    console.print(planned.sentence(), soft_wrap=True)


def experiments(
    root: Root = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the open experiments with their state, days left and last outcome."""
    from labkit.lab.board import board

    rows = board(root, datetime.now(UTC).date())
    if as_json:
        typer.echo(json.dumps([row.to_json() for row in rows], indent=2))
        return
    table = Table(title="open experiments")
    for column in ("experiment", "state", "days left", "records", "last outcome", "claim"):
        table.add_column(column)
    for row in rows:
        style = "red" if row.state in ("expired", "invalid") else ""
        days = "-" if row.days_left is None else str(row.days_left)
        cells = (row.name, row.state, days, str(row.records), row.last_outcome or "-", row.statement)
        table.add_row(*cells, style=style)
    Console().print(table)
