"""`labkit models`: fetch, list and show models. Errors are raised as LabkitError; the caller renders them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from labkit.cli.complete import complete_model_names
from labkit.cli.console import Console
from labkit.cli.facts import facts_table, null_table, parameters, size, stored
from labkit.cli.progress import ProgressSink
from labkit.cli.root import Root
from labkit.core.errors import LabkitError
from labkit.model import registry
from labkit.model.artifact import Artifact, measure, read_packing
from labkit.model.fetch import BUNDLED
from labkit.model.graph import load_graph
from labkit.model.null import NullModel, is_null, parse_null
from labkit.model.origin import read_origin, terms_of
from labkit.model.profile import read_profile
from labkit.model.wording import one_line

if TYPE_CHECKING:
    from labkit.lab.verifying.badge import Standing, Standings

app = typer.Typer(help="Fetch, list and show models.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Source = Annotated[
    str,
    typer.Argument(
        help="A bundled name, a model directory, a .gguf file, a hub id org/name or org/name:file.gguf.",
        autocompletion=complete_model_names,
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        help="float32, bfloat16 or float16: of an import from GGUF, or a converted copy of other weights."
    ),
]
KeepQuantized = Annotated[
    bool,
    typer.Option("--keep-quantized", help="Of an import from GGUF: keep packed what MLX can hold packed."),
]


@app.command()
def get(source: Source, dtype: Dtype = None, keep_quantized: KeepQuantized = False) -> None:
    """Fetch and import a model; a model that is there already is left as it is."""
    with ProgressSink(Console(stderr=True)) as sink:
        path = registry.get(source, dtype=dtype, keep_quantized=keep_quantized, sink=sink)
        artifact = measure(path, sink=sink)
    Console().print(
        f"[bold]{escape(artifact.name)}[/bold] {size(artifact)} in {escape(str(path))}",
        highlight=False,
        soft_wrap=True,
    )
    terms = terms_of(read_origin(path))
    if terms:
        Console().print(f"under {escape(terms)}", highlight=False, soft_wrap=True)


@app.command("list")
def list_models(root: Root = Path(), as_json: Json = False) -> None:
    """List installed models, damaged ones, and bundled ones that are not installed yet.

    Below a fingerprint stands its badge of `labkit verify` in this lab, verified or lost. The model `null` is
    always there and is not listed: it has no weights and shows that the lab works.
    """
    artifacts, damaged = _measured()
    waiting = sorted(set(BUNDLED) - {a.name for a in artifacts})
    badges = _standings(root, artifacts)
    if as_json:
        rows = {"installed": [_row(a, badges.of(a)) for a in artifacts], "bundled": waiting}
        typer.echo(json.dumps({**rows, "damaged": [_damaged_row(d) for d in damaged]}, indent=2))
        return
    if artifacts:
        _print_table(artifacts, badges)
    for found in damaged:
        text = f"{found.name} is damaged: {found.reason} ({found.path})"
        Console(stderr=True).print(text, style="red", highlight=False, markup=False, soft_wrap=True)
    for name in waiting:
        Console().print(f"{name} is not installed: labkit models get {name}", highlight=False)


@app.command()
def show(source: Source, root: Root = Path(), as_json: Json = False) -> None:
    """Show what is known of an installed model, a model directory or a null model; check that it loads.

    Its badge of `labkit verify` is that of this lab.
    """
    if is_null(source):
        _show_null(parse_null(source), as_json)
        return
    path = registry.resolve(source)
    load_graph(path, lazy=True)
    with ProgressSink(Console(stderr=True)) as sink:
        artifact = measure(path, sink=sink)
    profile, packing, origin = read_profile(artifact), read_packing(path), read_origin(path)
    standing = _standings(root, [artifact]).of(artifact)
    if as_json:
        rows = {
            "artifact": _row(artifact, standing),
            "profile": asdict(profile),
            "source": origin.get("source"),
        }
        typer.echo(json.dumps({**rows, "packing": [asdict(p) for p in packing]}, indent=2))
        return
    badge = standing.sentence() if standing else f"none; labkit verify {artifact.name}"
    Console().print(facts_table(artifact, profile, packing, origin, badge))


def _show_null(model: NullModel, as_json: bool) -> None:
    """The null model has no artifact: its profile, and what its name sets."""
    if as_json:
        rows = {"artifact": None, "profile": asdict(model.profile), "source": None, "packing": []}
        typer.echo(json.dumps({**rows, "settings": asdict(model.settings)}, indent=2))
        return
    Console().print(null_table(model))


def _measured() -> tuple[list[Artifact], list[registry.Damaged]]:
    """Every installed model measured, and those that cannot be, with the reason."""
    artifacts, damaged = [], list(registry.damaged())
    with ProgressSink(Console(stderr=True)) as sink:
        for found in registry.installed():
            try:
                artifacts.append(measure(found.path, name=found.name, sink=sink))
            except (LabkitError, OSError) as error:
                damaged.append(registry.Damaged(found.name, found.path, one_line(error)))
    return artifacts, damaged


def _standings(root: Path, artifacts: list[Artifact]) -> Standings:
    """The badges of these models in the lab; a damaged one is told."""
    from labkit.lab.verifying.badge import standings

    found = standings(root, artifacts)
    for bad in found.damaged:
        line = f"damaged badge, left as it is and out of this: {bad.path}: {bad.reason}"
        Console(stderr=True).print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)
    return found


def _print_table(artifacts: list[Artifact], badges: Standings) -> None:
    """Models are asked for by name, so a name is never cut; other columns fold where it is narrow."""
    console, table = Console(), _models_table(artifacts, badges)
    least = Measurement.get(console, console.options.update(max_width=1 << 12), table).minimum
    Console(width=max(console.width, least)).print(table, soft_wrap=least > console.width)


def _models_table(artifacts: list[Artifact], badges: Standings) -> Table:
    table = Table(box=None)
    for label in ("model", "family", "dtype", "size", "params", "bits", "fingerprint"):
        table.add_column(label, no_wrap=label not in ("family", "fingerprint"), overflow="fold")
    for a in artifacts:
        bits = f"{a.effective_bpw:.2f}"
        table.add_row(
            *(escape(a.name), escape(a.family), a.dtype, stored(a), parameters(a), bits),
            "\n".join([a.fingerprint[:8], *_badge(badges.of(a))]),
        )
    return table


def _badge(standing: Standing | None) -> list[str]:
    return [] if standing is None else ["verified" if standing.verified else "badge lost"]


def _row(artifact: Artifact, standing: Standing | None) -> dict[str, Any]:
    badge = standing.to_json() if standing else None
    return {**artifact.identity(), "path": str(artifact.path), "verification": badge}


def _damaged_row(found: registry.Damaged) -> dict[str, str]:
    return {"name": found.name, "path": str(found.path), "reason": found.reason}
