"""The commands of labkit, each registered under its name."""

from __future__ import annotations

import typer

from labkit import __version__
from labkit.cli import (
    bench,
    compare,
    control,
    decide,
    demo,
    doctor,
    fit,
    frontier,
    history,
    judge,
    models,
    new,
    revalidate,
    run,
    show,
    sql,
    store,
    verify,
)
from labkit.cli.commands import Commands

app = typer.Typer(
    name="labkit",
    cls=Commands,
    help="A research lab and benchmark workbench for language models on MLX.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(models.app, name="models")
app.add_typer(store.app, name="store")
app.add_typer(new.app, name="new")
app.add_typer(bench.app, name="bench")
app.command()(run.run)
app.command("plan-run")(run.plan_run)
app.command()(fit.fit)
app.command()(control.control)
app.command()(run.experiments)
app.command()(judge.judge)
app.command()(decide.promote)
app.command()(decide.delete)
app.command()(decide.renew)
app.command()(revalidate.revalidate)
app.command()(decide.check)
app.command()(frontier.frontier)
app.command()(show.show)
app.command()(compare.compare)
app.command()(history.history)
app.command()(sql.sql)
app.command()(sql.export)
app.command()(demo.demo)
app.command()(doctor.doctor)
app.command()(verify.verify)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"labkit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """A research lab and benchmark workbench for language models on MLX."""
