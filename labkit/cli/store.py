"""`labkit store`: the index over the records."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from labkit.cli.damage import tell
from labkit.cli.root import Root
from labkit.core.errors import LabkitError
from labkit.store.index import Index
from labkit.store.query import database_path

app = typer.Typer(help="The DuckDB index over the records in results/.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """The DuckDB index over the records in results/."""


@app.command()
def rebuild(root: Root = Path()) -> None:
    """Build results/lab.duckdb anew from every record and list the damaged ones, which are left out."""
    _report(_rebuild(root), root, Console(highlight=False))


def _rebuild(root: Path) -> Index:
    import duckdb

    from labkit.store import index

    try:
        return index.rebuild(root, database_path(root))
    except duckdb.Error as error:
        raise LabkitError(
            "room and permission for results/lab.duckdb were needed",
            got=str(error).partition("\n")[0],
            next_step="the records are untouched: free some space, then repeat the command",
        ) from error


def _report(built: Index, root: Path, console: Console) -> None:
    name = built.database.relative_to(root).as_posix()
    console.print(f"{name}: {built.records} {'record' if built.records == 1 else 'records'} indexed.")
    tell(built.damaged)
    if not built.records:
        console.print("No experiment has been recorded yet. Next: labkit run experiments/<file>.py")
