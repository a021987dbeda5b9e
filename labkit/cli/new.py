"""`labkit new`: what one begins with."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from labkit.cli.complete import complete_metric_names, complete_model_names
from labkit.cli.console import Console
from labkit.cli.root import Root
from labkit.store.lab_folder import find_lab

app = typer.Typer(help="Begin something: an experiment and its notebook.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Lower-case letters, digits and hyphens, such as kv4-at-1k.")]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        help="What both arms run; null is a model without weights, for a first try.",
        autocompletion=complete_model_names,
    ),
]
Improves = Annotated[
    str | None,
    typer.Option(
        "--improves",
        help="The metric to claim; the draft's own by default.",
        autocompletion=complete_metric_names,
    ),
]


@app.callback()
def group() -> None:
    """Begin something: an experiment and its notebook."""


@app.command()
def experiment(
    name: Name,
    root: Root = Path(),
    model: Model = "smollm2",
    improves: Improves = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write experiments/NAME.py and notebooks/NAME.ipynb, which already run, to edit from there."""
    from labkit.lab.new import new_experiment

    today = datetime.now(UTC).date()
    made = new_experiment(root, name, today=today, model=model, improves=improves)
    if as_json:
        written = {"name": made.name, "file": str(made.file), "notebook": str(made.notebook)}
        typer.echo(json.dumps(written, indent=2))
        return
    console = Console(highlight=False)
    elsewhere = "" if root.resolve() == find_lab() else f" --root {shlex.quote(str(root))}"
    steps = (
        ("experiment", str(made.file)),
        ("notebook", str(made.notebook)),
        ("edit", "the claim, the margins and the candidate: as written it already runs"),
        ("then", f"labkit run {shlex.quote(str(made.file))}{elsewhere}"),
    )
    for label, text in steps:
        console.print(f"{label:<12}{text}", markup=False, soft_wrap=True)
