"""`labkit demo`: the main job once, from the shipped experiments to verdicts and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from labkit.cli.console import Console
from labkit.cli.progress import ProgressSink
from labkit.cli.report import print_verdicts, sentence
from labkit.cli.root import Root

if TYPE_CHECKING:
    from labkit.lab.experiment import ExperimentFile
    from labkit.lab.run import Finished

EXPERIMENTS = ("kv8-at-256.py", "mkl-prefill.py")


def demo(root: Root = Path()) -> None:
    """Run the shipped experiments on the bundled model and draw the frontier. Takes a few minutes."""
    from labkit.core.errors import LabkitError
    from labkit.lab.experiment import load_experiment

    out = Console()
    files = [load_experiment(root / "experiments" / name) for name in EXPERIMENTS]
    finished: list[Finished] = []
    skipped: list[str] = []
    for file in files:
        try:
            finished.append(_run(file, root, out))
        except LabkitError as error:
            if error.exit_code == 130 or len(finished) + len(skipped) == 0:
                raise
            skipped.append(f"{file.experiment.name}: {error}")
    pictures = _pictures(root, finished)
    _close(out, finished, skipped, pictures)


def _run(file: ExperimentFile, root: Path, out: Console) -> Finished:
    from labkit.lab.run import run

    out.rule(file.experiment.name)
    with ProgressSink(Console(stderr=True)) as sink:
        finished = run(file, root=root, sink=sink)
    print_verdicts(out, finished.record)
    return finished


def _pictures(root: Path, finished: list[Finished]) -> list[Path]:
    from labkit.cli.pictures import draw_frontier, draw_verdicts

    drawn = [draw_verdicts(root, f.record.run_id, f.record.experiment["name"])[0] for f in finished]
    return [*drawn, draw_frontier(root)[0]]


def _close(out: Console, finished: list[Finished], skipped: list[str], pictures: list[Path]) -> None:
    out.rule("what was found")
    for run in finished:
        out.print(f"- {sentence(run.record)}", soft_wrap=True, markup=False, highlight=False)
    for text in skipped:
        out.print(f"- skipped {text}", soft_wrap=True, markup=False)
    out.rule("where it is")
    for run in finished:
        out.print(f"record   {run.path}", soft_wrap=True, markup=False, highlight=False)
    for path in pictures:
        out.print(f"picture  {path}", soft_wrap=True, markup=False, highlight=False)
    out.rule("what to try next")
    out.print(". .venv/bin/activate             once per terminal, so that `labkit` is found")
    out.print("make lab                        step the model by hand in a notebook")
    out.print("labkit frontier                 the non-dominated points, printed and drawn")
    out.print("labkit plan-run FILE            how many pairs a margin needs")
    out.print("cp experiments/kv8-at-256.py experiments/mine.py")
    out.print("                                give it a name and a claim of its own, then:")
    out.print("labkit run experiments/mine.py")
