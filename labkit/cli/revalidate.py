"""`labkit revalidate`: measure promoted experiments again, and reopen what no longer holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from labkit.cli.complete import complete_promoted_names
from labkit.cli.console import Console, visible
from labkit.cli.progress import ProgressSink
from labkit.cli.root import Root


def revalidate(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of promoted experiments; by default all.",
            autocompletion=complete_promoted_names,
            show_default=False,
        ),
    ] = None,
    root: Root = Path(),
    pairs: Annotated[
        int | None,
        typer.Option("--pairs", help="Pairs of visits; by default as many as the promotion had."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure promoted experiments again with the present code; what no longer holds is reopened.

    What is unresolved stays promoted and is told; a recipe of another machine class is skipped. Exit code 1
    where anything is left to do.
    """
    from labkit.lab.deciding.revalidate import revalidate as measure_again
    from labkit.lab.deciding.revalidation import Revalidated

    def tell(result: Revalidated) -> None:
        if not as_json:
            typer.echo(visible(result.text()))

    with ProgressSink(Console(stderr=True)) as sink:
        found = measure_again(*(names or ()), root=root, pairs=pairs, sink=sink, ended=tell)
    typer.echo(json.dumps(found.to_json(), indent=2) if as_json else found.sentence())
    raise typer.Exit(0 if found.ok else 1)
