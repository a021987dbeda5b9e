"""`labkit promote`, `delete`, `renew` and `check`: decide experiments, and see that none stays undecided."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labkit.cli.complete import complete_decidable_names, complete_experiment_names
from labkit.cli.console import Console
from labkit.cli.root import Root
from labkit.core.errors import LabkitError

if TYPE_CHECKING:
    from labkit.lab.deciding.decided import Decided

Name = Annotated[
    str,
    typer.Argument(
        help="An experiment's name, as `labkit experiments` lists it.",
        autocompletion=complete_experiment_names,
    ),
]
Decidable = Annotated[
    str,
    typer.Argument(
        help="The name of an open or promoted experiment.", autocompletion=complete_decidable_names
    ),
]
Why = Annotated[str, typer.Option("--why", help="The reason, which is kept with the decision.")]


def promote(
    name: Name,
    why: Why,
    root: Root = Path(),
    record: Annotated[
        str | None,
        typer.Option("--record", help="The record to rest on; by default the newest complete one."),
    ] = None,
    accept_trade_off: Annotated[
        bool,
        typer.Option("--accept-trade-off", help="Promote although the record shows that something is lost."),
    ] = False,
) -> None:
    """Promote an open experiment: its candidate becomes a recipe for the machine it was measured on.

    Refused, with every reason at once, where the record does not carry it. The file moves to
    experiments/promoted/; `labkit delete` is the way back out.
    """
    from labkit.lab.deciding.promotion import promote as decide

    _show(decide(name, why=why, root=root, record=record, accept_trade_off=accept_trade_off))


def delete(name: Decidable, why: Why, root: Root = Path()) -> None:
    """Delete an open experiment, or a promoted one with its recipe. Its records stay.

    A line stays in experiments/GRAVEYARD.md; a file that git does not hold moves to results/set-aside/,
    and so does the notebook that was made with it.
    """
    from labkit.lab.deciding.burial import delete as decide

    _show(decide(name, why=why, root=root))


def renew(
    name: Name,
    why: Why,
    until: Annotated[str, typer.Option("--until", help="The new expiry, a date such as 2027-02-01.")],
    root: Root = Path(),
) -> None:
    """Give an open experiment longer, once. Its file stays as it is."""
    from labkit.lab.deciding.renewal import renew as decide

    _show(decide(name, until=until, why=why, root=root))


def check(
    root: Root = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that nothing is overdue, broken or undecided; exit code 1 where something is."""
    from labkit.lab.deciding.check import check as look

    checked = look(root)
    if as_json:
        typer.echo(json.dumps(checked.to_json(), indent=2))
    else:
        errors = Console(stderr=True, highlight=False)
        for note in checked.notes:
            errors.print(f"note: {note}", markup=False, soft_wrap=True)
        for fault in checked.faults:
            typer.echo(fault.line())
        typer.echo(checked.sentence())
    raise typer.Exit(0 if checked.ok else 1)


def _show(decided: Decided) -> None:
    """Print what was decided. Where that cannot be written, the decision stands and is told as such."""
    try:
        typer.echo(decided.text())
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is still buffered would fail once more when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        made = f"{decided.decision.name} is {decided.decision.kind}; only this could not be written"
        raise LabkitError(
            f"{made}: what was done", got=error.strerror or str(error), next_step="labkit experiments --all"
        ) from error
