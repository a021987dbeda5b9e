"""`labkit store`: the index over the records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from labkit.store.index import Index
from labkit.store.query import database_path

app = typer.Typer(help="The DuckDB index over the records in results/.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """The DuckDB index over the records in results/."""


@app.command()
def rebuild(
    root: Annotated[Path, typer.Option("--root", help="The lab's folder, which holds results/.")] = Path(),
) -> None:
    """Build results/lab.duckdb anew from every record and list the damaged ones."""
    from labkit.store import index

    _report(index.rebuild(root, database_path(root)), root, Console(highlight=False))


def _report(built: Index, root: Path, console: Console) -> None:
    name = built.database.relative_to(root).as_posix()
    console.print(f"{name}: {built.records} {'record' if built.records == 1 else 'records'} indexed.")
    for bad in built.damaged:
        console.print(f"  damaged, left as it is: {escape(bad.path)}: {escape(bad.reason)}", soft_wrap=True)
    if not built.records:
        console.print("No experiment has been recorded yet. Next: labkit run experiments/<file>.py")
