"""A finished run on the terminal: verdicts, the sentence, where its record and its picture lie."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from labkit.cli.console import Console
from labkit.cli.report import print_verdicts, sentence

if TYPE_CHECKING:
    from labkit.lab.measuring.finished import Finished


def print_finished(console: Console, root: Path, finished: Finished) -> None:
    """Print a finished run and draw its picture."""
    from labkit.cli.pictures import draw_verdicts

    record = finished.record
    print_verdicts(console, record)
    console.print(sentence(record), highlight=False, markup=False)
    console.print(f"record:  {finished.path}", soft_wrap=True, highlight=False, markup=False)
    picture, _ = draw_verdicts(root, record.run_id, record.experiment["name"])
    console.print(f"picture: {picture}", soft_wrap=True, highlight=False, markup=False)
