"""`labkit models`: fetch, list and show models. Errors are raised as LabkitError; the caller renders them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from labkit.cli.progress import ProgressSink
from labkit.core.errors import LabkitError
from labkit.core.spec import Profile
from labkit.model import registry
from labkit.model.artifact import Artifact, measure
from labkit.model.fetch import BUNDLED
from labkit.model.profile import read_profile

app = typer.Typer(help="Fetch, list and show models.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Source = Annotated[
    str, typer.Argument(help="A bundled name, a model directory, a .gguf file or a hub id org/name.")
]


@app.command()
def get(
    source: Source,
    dtype: Annotated[
        str | None, typer.Option(help="Of an import from GGUF: float32, bfloat16, float16.")
    ] = None,
) -> None:
    """Fetch and import a model; a model that is there already is left as it is."""
    with ProgressSink(Console(stderr=True)) as sink:
        path = registry.get(source, dtype=dtype, sink=sink)
        artifact = measure(path, sink=sink)
    Console().print(
        f"[bold]{escape(artifact.name)}[/bold] {_size(artifact)} in {escape(str(path))}",
        highlight=False,
        soft_wrap=True,
    )


@app.command("list")
def list_models(as_json: Json = False) -> None:
    """List installed models, and bundled ones that are not installed yet."""
    artifacts, damaged = _measured()
    waiting = sorted(set(BUNDLED) - {a.name for a in artifacts})
    if as_json:
        typer.echo(json.dumps({"installed": [_row(a) for a in artifacts], "bundled": waiting}, indent=2))
        return
    if artifacts:
        Console().print(_models_table(artifacts))
    for name, reason in damaged:
        text = f"{name} is damaged: {reason}"
        Console(stderr=True).print(text, style="red", highlight=False, markup=False, soft_wrap=True)
    for name in waiting:
        Console().print(f"{name} is not installed: labkit models get {name}", highlight=False)


@app.command()
def show(source: Source, as_json: Json = False) -> None:
    """Show what is known of an installed model or a model directory."""
    with ProgressSink(Console(stderr=True)) as sink:
        artifact = measure(registry.resolve(source), sink=sink)
    profile = read_profile(artifact)
    if as_json:
        typer.echo(json.dumps({"artifact": _row(artifact), "profile": asdict(profile)}, indent=2))
        return
    Console().print(_facts_table(artifact, profile))


def _measured() -> tuple[list[Artifact], list[tuple[str, str]]]:
    """Every installed model measured, and those that cannot be, with the reason."""
    artifacts, damaged = [], []
    with ProgressSink(Console(stderr=True)) as sink:
        for found in registry.installed():
            try:
                artifacts.append(measure(found.path, name=found.name, sink=sink))
            except (LabkitError, OSError) as error:
                damaged.append((found.path.name, " ".join(str(error).split())))
    return artifacts, damaged


def _models_table(artifacts: list[Artifact]) -> Table:
    table = Table("model", "family", "dtype", "size", "params", "bits", "fingerprint", box=None)
    for a in artifacts:
        bits = f"{a.effective_bpw:.2f}"
        table.add_row(
            escape(a.name), escape(a.family), a.dtype, _bytes(a), _millions(a), bits, a.fingerprint[:8]
        )
    return table


def _facts_table(artifact: Artifact, profile: Profile) -> Table:
    kinds = {kind: profile.layers.count(kind) for kind in dict.fromkeys(profile.layers)}
    table = Table("", "", box=None, show_header=False)
    rows = {
        "model": artifact.name,
        "family": artifact.family,
        "path": str(artifact.path),
        "size": _size(artifact),
        "fingerprint": artifact.fingerprint,
        "architecture": f"{profile.architecture} ({profile.status}, oracle {profile.oracle})",
        "layers": ", ".join(f"{n} {kind}" for kind, n in kinds.items()),
        "sliding window": str(profile.sliding_window) if profile.sliding_window else "none",
        "heads": f"{profile.heads}, {profile.kv_heads} for keys and values, {profile.head_dim} wide",
        "context": f"{profile.context_length:,} tokens",
        "vocabulary": f"{profile.vocab_size:,}",
    }
    for label, value in rows.items():
        table.add_row(f"[bold]{label}[/bold]", escape(value))
    return table


def _row(artifact: Artifact) -> dict[str, Any]:
    return {**artifact.identity(), "path": str(artifact.path)}


def _size(a: Artifact) -> str:
    return f"{a.dtype}, {_millions(a)} parameters, {_bytes(a)}, {a.effective_bpw:.2f} bits per weight"


def _bytes(a: Artifact) -> str:
    return f"{a.artifact_bytes / 1e6:,.1f} MB"


def _millions(a: Artifact) -> str:
    return f"{a.parameters / 1e6:,.1f} M"
