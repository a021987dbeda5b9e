"""`labkit control`: measure the bench itself on an effect that is known before."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labkit.cli.console import Console
from labkit.cli.finished import print_finished
from labkit.cli.progress import ProgressSink
from labkit.cli.root import Root
from labkit.cli.run import File


def control(
    file: File,
    root: Root = Path(),
    slowed: Annotated[
        float | None,
        typer.Option("--slowed", help="Slow one arm by this share of each step, such as 0.10."),
    ] = None,
    pairs: Annotated[
        int | None, typer.Option("--pairs", help="Pairs of visits; 8 where nothing is said.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Another seed, for another order of visits.")
    ] = None,
) -> None:
    """Run the baseline of FILE against itself: the A/A floor. With --slowed against a slower self.

    The record is kept as a control; `labkit run` rests its verdicts on the newest quiet A/A that fits.
    """
    from labkit.lab.measuring.controls import control as run_control

    console = Console()
    with ProgressSink(Console(stderr=True)) as sink:
        finished = run_control(file, slowed=slowed, pairs=pairs, seed=seed, root=root, sink=sink)
    print_finished(console, root, finished)
