"""`labkit demo`: the main job once, from the shipped experiments to verdicts and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from labkit.cli.console import Console
from labkit.cli.progress import ProgressSink
from labkit.cli.report import print_verdicts, sentence
from labkit.cli.root import Root

if TYPE_CHECKING:
    from labkit.lab.measuring.run import Finished

SHIPPED = ("kv8-at-256", "mkl-prefill")


def demo(root: Root = Path()) -> None:
    """Run the shipped experiments on the bundled model and draw the frontier. Takes a few minutes."""
    from labkit.core.errors import LabkitError

    out = Console()
    files, gone = _shipped(root)
    finished: list[Finished] = []
    skipped: list[str] = []
    for file in files:
        try:
            finished.append(_run(file, root, out))
        except LabkitError as error:
            if error.exit_code == 130 or not finished:
                raise
            skipped.append(f"{file.stem}: {error}")
    _close(out, finished, [*gone, *skipped], _pictures(root, finished))


def _shipped(root: Path) -> tuple[list[Path], list[str]]:
    """The files of the shipped experiments that are open or promoted, and what became of the others.

    Raises ExperimentInvalid where there is none to run, RecipeInvalid where a file of decisions is broken.
    """
    from labkit.core.errors import ExperimentInvalid
    from labkit.lab.deciding.ledger import kept_folder, lab_root, open_folder

    folders = (open_folder(lab_root(root)), kept_folder(root))
    found = {name: [p for f in folders if (p := f / f"{name}.py").is_file()][:1] for name in SHIPPED}
    gone = [_what_became_of(name, root) for name, files in found.items() if not files]
    if len(gone) < len(SHIPPED):
        return [file for files in found.values() for file in files], gone
    raise ExperimentInvalid(
        f"a shipped experiment, open or promoted, was needed in {open_folder(root).resolve()}",
        got="; ".join(gone),
        next_step="labkit new experiment NAME makes one of your own, labkit run measures it",
    )


def _what_became_of(name: str, root: Path) -> str:
    from labkit.lab.deciding.ledger import Ledger
    from labkit.store.decisions import read_burials, read_recipes

    ledger = Ledger(root, (), (), recipes=read_recipes(root), burials=read_burials(root))
    return ledger.decided(name) or f"{name}, which is not in this lab"


def _run(file: Path, root: Path, out: Console) -> Finished:
    from labkit.lab.measuring.run import run

    out.rule(file.stem)
    with ProgressSink(Console(stderr=True)) as sink:
        # A first look: the A/A control, which the next `labkit run` makes, would double the time.
        finished = run(file, root=root, sink=sink, floor=False)
    print_verdicts(out, finished.record)
    return finished


def _pictures(root: Path, finished: list[Finished]) -> list[Path]:
    from labkit.cli.pictures import draw_frontier, draw_verdicts

    drawn = [draw_verdicts(root, f.record.run_id, f.record.experiment["name"])[0] for f in finished]
    return [*drawn, *(path for path in draw_frontier(root) if path.suffix == ".png")]


def _close(out: Console, finished: list[Finished], skipped: list[str], pictures: list[Path]) -> None:
    out.rule("what was found")
    for run in finished:
        out.print(f"- {sentence(run.record)}", soft_wrap=True, markup=False, highlight=False)
    for text in skipped:
        out.print(f"- skipped {text}", soft_wrap=True, markup=False, highlight=False)
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
    out.print("labkit new experiment mine      a file and a notebook that already run; edit them, then:")
    out.print("labkit run experiments/mine.py")
