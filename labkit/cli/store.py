"""`labkit store`: the index over the records, the list of them, and damaged ones set aside."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from labkit.cli.console import Console
from labkit.cli.damage import tell
from labkit.cli.root import Root
from labkit.core.errors import LabkitError
from labkit.store.index import Index
from labkit.store.query import database_path

app = typer.Typer(help="The DuckDB index over the records in results/.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
_LISTED = (
    *("run_id", "experiment", "state", "outcome", "quiet", "machine", "started_at", "path"),
    "superseded_by",
)
# The records of one run began at the same time: the one that counts comes first.
_LIST = f"""
SELECT {", ".join(_LISTED)} FROM runs LEFT JOIN superseded USING (run_id, machine)
ORDER BY started_at DESC, superseded_by IS NOT NULL, run_id DESC, machine
"""


@app.callback()
def group() -> None:
    """The DuckDB index over the records in results/."""


@app.command()
def rebuild(root: Root = Path(), as_json: Json = False) -> None:
    """Build results/lab.duckdb anew from every record and list the damaged ones, which are left out.

    A run that was killed is sealed into a partial record first.
    """
    _seal(root)
    built = _rebuild(root)
    if as_json:
        answer = {**asdict(built), "database": built.database.relative_to(root).as_posix()}
        typer.echo(json.dumps(answer, indent=2))
        return
    _report(built, root, Console(highlight=False))


@app.command("list")
def list_records(root: Root = Path(), as_json: Json = False) -> None:
    """List the records, newest first, and the damaged ones with the reason.

    A run that was stopped and gone on with counts once: the partial record of a stop is superseded.
    """
    from labkit.store import query

    found, bad = query.ask(root, lambda c: (c.execute(_LIST).fetchall(), query.damaged_files(c)))
    rows: list[dict[str, Any]] = [dict(zip(_LISTED, row, strict=True)) for row in found]
    if as_json:
        typer.echo(json.dumps({"records": rows, "damaged": [asdict(d) for d in bad]}, indent=2))
        return
    if rows:
        _print_records(rows)
    else:
        Console(highlight=False).print("No record yet. Next: labkit run experiments/<file>.py", markup=False)
    tell(bad)


@app.command("set-aside")
def set_aside(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Damaged records; all of them if none is named.")
    ] = None,
    root: Root = Path(),
    as_json: Json = False,
) -> None:
    """Move damaged records to results/set-aside/, each with its reason beside it. Nothing is deleted."""
    from labkit.store.set_aside import set_aside as move

    moved = move(root, paths or ())
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in moved], indent=2))
        return
    console = Console(highlight=False)
    for each in moved:
        console.print(f"{each.path}: {each.reason}\n  moved to {each.moved_to}", markup=False, soft_wrap=True)
    if not moved:
        console.print("No record is damaged: nothing to set aside.")


def _print_records(rows: list[dict[str, Any]]) -> None:
    """Two lines a record: by its run id one asks for more, so that has the room."""
    table = Table(Column("run, machine", overflow="fold"), "state, date", "outcome", "quiet", box=None)
    for row in rows:
        quiet = {True: "yes", False: "no"}.get(row["quiet"], "")
        mark = "superseded" if row["superseded_by"] else row["state"]
        state = f"{mark}\n{row['started_at'][:10]}"
        cells = (f"{row['run_id']}\n{row['experiment']} on {row['machine']}", state, row["outcome"], quiet)
        table.add_row(*(escape(str(cell)) for cell in cells))
    Console(highlight=False).print(table)


def _seal(root: Path) -> None:
    """Keep what killed runs had measured."""
    from labkit.cli.progress import ProgressSink
    from labkit.lab.measuring.run import utc_now
    from labkit.lab.measuring.unfinished import seal_orphans

    with ProgressSink(Console(stderr=True)) as sink:
        seal_orphans(root, sink, utc_now)


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
    if built.dropped_log:
        text = f"changes that another program had not yet written to {name} are not in the new file"
        Console(stderr=True, highlight=False).print(text, style="yellow", markup=False, soft_wrap=True)
    tell(built.damaged)
    if not built.records:
        console.print("No experiment has been recorded yet. Next: labkit run experiments/<file>.py")
