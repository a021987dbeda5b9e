"""`labkit sql` and `labkit export`: questions to the results, and the results as files."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Column, Table

from labkit.cli.console import Console
from labkit.cli.damage import tell
from labkit.cli.root import Root
from labkit.core.errors import LabkitError

ROWS, BLOCKS = 40, 5
# A column narrower than this folds every word.
_NARROW = 8


def sql(
    query: Annotated[str | None, typer.Argument(help="One SELECT; without it, what can be asked.")] = None,
    root: Root = Path(),
    everything: Annotated[bool, typer.Option("--all", help=f"All rows, not the first {ROWS}.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, all rows.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, all rows.")] = False,
) -> None:
    """Ask the results by SQL, or list their tables and views. Reads only."""
    from labkit.lab.reading import question

    if as_json and as_csv:
        raise LabkitError("one form of output was needed", got="--json and --csv")
    if query is None:
        _list_relations(question.relations(root), as_json, as_csv)
        return
    limit = None if everything or as_json or as_csv else ROWS
    answer = question.answer(query, root, limit)
    tell(answer.damaged)
    if as_json:
        rows = [dict(zip(answer.columns, map(_plain, row), strict=True)) for row in answer.rows]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False))
    elif as_csv:
        _write_csv(answer.columns, answer.rows)
    else:
        _print_answer(answer.columns, answer.rows, answer.more, everything)


def export(
    parquet: Annotated[Path | None, typer.Option("--parquet", help="Folder for Parquet files.")] = None,
    to_csv: Annotated[Path | None, typer.Option("--csv", help="Folder for CSV files.")] = None,
    root: Root = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace files of the same names.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the paths as JSON.")] = False,
) -> None:
    """Write every table and view of the results as a file, for other tools."""
    from labkit.lab.reading.question import relation_names
    from labkit.lab.reading.standings import ask_lab
    from labkit.store.export import export as write
    from labkit.store.query import damaged_files

    if (parquet is None) == (to_csv is None):
        raise LabkitError(
            "one folder to export to was needed",
            got="none" if parquet is None else "two",
            options=("--parquet DIR", "--csv DIR"),
        )
    folder, form = (parquet, "parquet") if parquet is not None else (to_csv, "csv")
    assert folder is not None
    files, bad = ask_lab(root, lambda c: (write(c, relation_names(), folder, form, force), damaged_files(c)))
    tell(bad)
    if as_json:
        typer.echo(json.dumps([str(path) for path in files], indent=2))
        return
    Console(highlight=False).print(f"{len(files)} files in {folder}", markup=False, soft_wrap=True)


def _list_relations(relations: Any, as_json: bool, as_csv: bool) -> None:
    if as_json:
        rows = [{**asdict(r), "columns": [{"name": n, "type": t} for n, t in r.columns]} for r in relations]
        typer.echo(json.dumps(rows, indent=2))
    elif as_csv:
        _write_csv(
            ("name", "kind", "column", "type"), [(r.name, r.kind, *c) for r in relations for c in r.columns]
        )
    else:
        table = Table(
            Column("name", no_wrap=True), "kind", Column("columns", overflow="fold"), box=SIMPLE_HEAD
        )
        for relation in relations:
            table.add_row(relation.name, relation.kind, escape(", ".join(_families(relation.columns))))
        Console().print(table)


def _families(columns: tuple[tuple[str, str], ...]) -> list[str]:
    """The names of columns; those of a metric's parts are told by the metric's own."""
    names = [name for name, _ in columns]
    parts = {
        f"{name}{end}" for name in names for end in ("_low", "_high", "_n", "_unit") if f"{name}_low" in names
    }
    return [f"{name}(_low _high)" if f"{name}_low" in names else name for name in names if name not in parts]


def _print_answer(columns: tuple[str, ...], rows: Any, more: int, everything: bool) -> None:
    console = Console(highlight=False)
    table = Table(*(Column(escape(name), overflow="fold") for name in columns), box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*(escape(_cell(value)) for value in row))
    wide = Measurement.get(console, console.options.update(max_width=1 << 14), table).maximum > console.width
    if wide and console.width < len(columns) * _NARROW:
        shown = rows if everything else rows[:BLOCKS]
        _print_blocks(console, columns, shown)
        more += len(rows) - len(shown)
    else:
        console.print(table)
    if more:
        rest = "1 more row" if more == 1 else f"{more} more rows"
        Console(stderr=True, highlight=False).print(f"{rest}: --all shows them, --json and --csv too.")


def _print_blocks(console: Console, columns: tuple[str, ...], rows: Any) -> None:
    """A block per row with a line per column that has a value: for more columns than a line holds."""
    for number, row in enumerate(rows, 1):
        console.print(f"row {number}")
        table = Table(Column(no_wrap=True), Column(overflow="fold"), box=None, show_header=False)
        for name, value in zip(columns, row, strict=True):
            if value is not None:
                table.add_row(f"  {escape(name)}", escape(_cell(value)))
        console.print(table)


def _write_csv(columns: tuple[str, ...], rows: Any) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_nested(value) for value in row] for row in rows)
    sys.stdout.write(out.getvalue())


def _nested(value: Any) -> Any:
    return json.dumps(_plain(value), ensure_ascii=False) if isinstance(value, list | dict) else value


def _plain(value: Any) -> Any:
    """A value as JSON holds it; what is not finite is null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    return str(value)
