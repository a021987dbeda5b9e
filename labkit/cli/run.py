"""`labkit run`, `plan-run` and `experiments`: measure an experiment, plan one, list them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Column, Table

from labkit.cli.complete import complete_experiment_files
from labkit.cli.console import Console
from labkit.cli.damage import tell
from labkit.cli.finished import print_finished
from labkit.cli.progress import ProgressSink
from labkit.cli.root import Root
from labkit.plots.amounts import digits

if TYPE_CHECKING:
    from labkit.lab.measuring.plan_run import PlannedRun
    from labkit.lab.reading.board import BoardRow

File = Annotated[
    Path,
    typer.Argument(
        help="An experiment file, such as experiments/kv8-at-256.py.",
        autocompletion=complete_experiment_files,
    ),
]
MaybeFile = Annotated[
    Path | None,
    typer.Argument(
        help="An experiment file; with --resume none is needed where one unfinished run lies here.",
        autocompletion=complete_experiment_files,
        show_default=False,
    ),
]
Pairs = Annotated[
    int | None, typer.Option("--pairs", help="Pairs of visits, at least 1; a verdict needs at least 8.")
]


def run(
    file: MaybeFile = None,
    root: Root = Path(),
    pairs: Pairs = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the unfinished run of FILE, or with the only one here."),
    ] = False,
    floor: Annotated[
        bool,
        typer.Option(
            "--floor/--no-floor",
            help="Measure the A/A control first where none counts for this baseline and workload.",
        ),
    ] = True,
) -> None:
    """Run the paired experiment of FILE and write one record. One that was stopped or killed can go on."""
    from labkit.lab.measuring.run import run as run_experiment

    if file is None and not resume:
        raise typer.BadParameter("Missing argument: an experiment file, or --resume", param_hint="'FILE'")
    console = Console()
    with ProgressSink(Console(stderr=True)) as sink:
        finished = run_experiment(file, root=root, pairs=pairs, resume=resume, sink=sink, floor=floor)
    print_finished(console, root, finished)


def plan_run(
    file: File,
    root: Root = Path(),
    pilot: Annotated[int, typer.Option("--pilot", help="Pairs of visits in the pilot, at least 3.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say how many pairs the margins of FILE need, and minutes, from a short pilot. Writes no record."""
    from labkit.lab.measuring.plan_run import plan_run as plan

    console = Console(highlight=False)
    with ProgressSink(Console(stderr=True)) as sink:
        planned = plan(file, root=root, pilot_pairs=pilot, sink=sink)
    if as_json:
        typer.echo(json.dumps(planned.to_json(), indent=2, allow_nan=False))
        return
    console.print(f"[bold]{planned.experiment}[/bold], a pilot of {planned.pilot_pairs} pairs")
    console.print(_plan_table(planned))
    for axis in planned.axes:
        console.print(f"{axis.title}: {axis.reason}", markup=False)
    console.print(planned.breakdown(), markup=False)
    console.print(planned.sentence(), markup=False)


def experiments(
    root: Root = Path(),
    decided: Annotated[
        bool, typer.Option("--all", help="The promoted and the deleted ones too, with their dates.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the open experiments with their state, days left and last outcome."""
    from labkit.lab.reading.board import board
    from labkit.lab.reading.runs import known

    found = known(root)
    rows = board(root, datetime.now(UTC).date(), decided=decided, known=found.runs)
    tell(found.damaged)
    if as_json:
        typer.echo(json.dumps([row.to_json() for row in rows], indent=2))
    elif rows:
        Console(highlight=False).print(_board_table(rows))
    else:
        typer.echo("No open experiment. labkit experiments --all lists what was decided.")


def _plan_table(planned: PlannedRun) -> Table:
    heads = ("axis", "margin", "SD of a pair\n(upper 80%)", "effect\nseen")
    whole = (Column(head, no_wrap=True) for head in ("pairs", "minutes"))
    table = Table(*heads, *whole, box=SIMPLE_HEAD)
    for axis in planned.axes:
        pairs = "-" if axis.pairs is None else str(axis.pairs)
        minutes = "-" if axis.minutes is None else "<0.1" if axis.minutes < 0.1 else digits(axis.minutes, 2)
        if axis.scale == "ratio":
            cells = (f"{axis.margin:.0%}", f"{axis.sd:.2%}", f"{axis.effect:+.1%}")
        else:
            cells = tuple(f"{value:.2g} {axis.unit}" for value in (axis.margin, axis.sd, axis.effect))
        table.add_row(axis.title, f"{axis.goal} {cells[0]}", *cells[1:], pairs, minutes)
    return table


def _board_table(rows: tuple[BoardRow, ...]) -> Table:
    whole = (Column(h, no_wrap=True) for h in ("state", "days\nleft", "records", "last\noutcome"))
    table = Table(Column("experiment", overflow="fold"), *whole, "claim", box=SIMPLE_HEAD)
    for row in rows:
        style = "red" if set(row.conditions) - {"renewed"} else ""
        days = "-" if row.days_left is None else str(row.days_left)
        state = "\n".join([row.state, *row.conditions, *filter(None, [row.decided_at])])
        cells = (
            escape(row.name),
            state,
            days,
            str(row.records),
            row.last_outcome or "-",
            escape(row.statement),
        )
        table.add_row(*cells, style=style)
    return table
