"""The command line: registers the commands and turns every error into one message and an exit code."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import typer
from rich.console import Console

from labkit import __version__
from labkit.cli import demo, frontier, models, run, store
from labkit.core.errors import LabkitError

INTERRUPTED = 130

app = typer.Typer(
    name="labkit",
    help="A research lab and benchmark workbench for language models on MLX.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(models.app, name="models")
app.add_typer(store.app, name="store")
app.command()(run.run)
app.command("plan-run")(run.plan_run)
app.command()(run.experiments)
app.command()(frontier.frontier)
app.command()(demo.demo)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"labkit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print it."),
) -> None:
    """A research lab and benchmark workbench for language models on MLX."""


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app(standalone_mode=True)
    except LabkitError as error:
        Console(stderr=True).print(
            f"labkit: {error}", style="red", highlight=False, markup=False, soft_wrap=True
        )
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        Console(stderr=True).print("labkit: interrupted", style="red")
        sys.exit(INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
