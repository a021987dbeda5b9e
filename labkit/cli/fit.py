"""`labkit fit`: whether a model fits this machine, and how fast it would be, before it is run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from labkit.cli.complete import complete_model_names
from labkit.cli.console import Console
from labkit.cli.kv_option import KV
from labkit.cli.progress import ProgressSink

if TYPE_CHECKING:
    from labkit.lab.verifying.fit import Fit

Source = Annotated[
    str,
    typer.Argument(
        help="A bundled name, a model directory, a .gguf file or a hub id.",
        autocompletion=complete_model_names,
    ),
]


def fit(
    model: Source,
    context: Annotated[int, typer.Option("--context", help="Tokens of a request, prompt and new ones.")],
    concurrency: Annotated[int, typer.Option("--concurrency", help="Requests at a time.")] = 1,
    kv: KV = "bf16",
    new_tokens: Annotated[
        int, typer.Option("--new-tokens", help="How many of the context are decoded.")
    ] = 32,
    prefill_chunk: Annotated[
        int | None,
        typer.Option("--prefill-chunk", help="Tokens of a prefill step; the backend's default if not given."),
    ] = None,
    memory_gib: Annotated[
        float | None,
        typer.Option("--memory-gib", help="What the model may take; else what this machine leaves it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Predict peak memory, the largest context that fits, and decode speed of MODEL. Runs no step of it."""
    from labkit.lab.verifying.fit import fit as predict

    with ProgressSink(Console(stderr=True)) as sink:
        found = predict(
            model,
            context=context,
            concurrency=concurrency,
            kv=kv,
            new_tokens=new_tokens,
            prefill_chunk=prefill_chunk,
            memory_gib=memory_gib,
            sink=sink,
        )
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2, allow_nan=False))
        return
    _print(found)


def _print(found: Fit) -> None:
    table = Table("", "", box=None, show_header=False)
    for label, value in found.rows():
        table.add_row(f"[bold]{escape(label)}[/bold]", escape(value))
    Console(highlight=False).print(table)
    for note in found.notes():
        Console(stderr=True).print(note, highlight=False, markup=False)
