"""New: a lab's next experiment, its file and its notebook, both of which already run. Overwrites nothing."""

from __future__ import annotations

import contextlib
import re
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from labkit.core.errors import ExperimentInvalid, LabkitError
from labkit.core.metrics import METRICS
from labkit.core.request import Request
from labkit.lab.draft import CHUNK, KV8, NULL, Draft, Idea, claimable
from labkit.lab.experiment import load_experiment
from labkit.lab.file_loader import load_files
from labkit.model import registry
from labkit.model.fetch import BUNDLED
from labkit.model.null import is_null, parse_null
from labkit.store.decisions import read_decisions
from labkit.store.durable import make_folder, write_new
from labkit.store.lab_folder import find_lab

DAYS = 60
LONGEST = 64
NAME = re.compile(rf"[a-z0-9][a-z0-9-]{{0,{LONGEST - 1}}}")
# The noise of a null model for which nobody set any: without it every interval would be exact.
NULL_MODEL = "null:sd=0.02"


@dataclass(frozen=True, slots=True)
class NewExperiment:
    """What was written."""

    name: str
    file: Path
    notebook: Path


def new_experiment(
    root: Path, name: str, *, today: date, model: str = "smollm2", improves: str | None = None
) -> NewExperiment:
    """Write experiments/NAME.py and notebooks/NAME.ipynb into a lab; the experiment expires in DAYS days.

    model: what both arms run; `null` for a first try without weights. improves: the metric to claim, None
    for the draft's own. Raises ExperimentInvalid for a name that is bad or taken (open, promoted, deleted or
    among the records), for a claim that cannot be measured and for a folder inside of another lab,
    ModelUnavailable for a model that labkit does not know, RecipeInvalid where a file of decisions is broken.
    Whatever fails, nothing is left behind.
    """
    _check_name(name)
    _check_place(root, name)
    written = NewExperiment(name, root / "experiments" / f"{name}.py", root / "notebooks" / f"{name}.ipynb")
    _check_free(root, written)
    draft = _draft(name, model, improves, today + timedelta(days=DAYS))
    _check_valid(draft)
    with _undone_on_failure() as made:
        for path, text in ((written.file, draft.experiment()), (written.notebook, draft.notebook())):
            _write(path, text, made)
    return written


def _check_name(name: str) -> None:
    if NAME.fullmatch(name):
        return
    near = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:LONGEST]
    raise ExperimentInvalid(
        f"a name of lower-case letters, digits and hyphens was needed, at most {LONGEST} of them",
        got=repr(name),
        next_step=f"labkit new experiment {near}" if near else None,
    )


def _check_place(root: Path, name: str) -> None:
    """A new lab may be made anywhere but inside of one, where its experiments would be overlooked."""
    around = find_lab(root)
    if around != root.resolve():
        raise ExperimentInvalid(
            "a lab, or a folder outside of every lab, was needed",
            got=f"{root.resolve()}, which is in the lab {around}",
            next_step=f"labkit new experiment {name} --root {shlex.quote(str(around))}",
        )


def _check_free(root: Path, wanted: NewExperiment) -> None:
    taken = next(_taken(root, wanted), None)
    if taken:
        need = "a name that no experiment of this lab has was needed"
        raise ExperimentInvalid(need, got=f"{wanted.name}: {taken}", next_step="choose another name")


def _taken(root: Path, wanted: NewExperiment) -> Iterator[str]:
    """Where a name is in use already. Records are looked for by name alone: a lab may hold many."""
    for path in (wanted.file, wanted.notebook):
        if path.exists() or path.is_symlink():
            yield f"{path.relative_to(root)} is there"
    for decision in read_decisions(root):
        if decision.name == wanted.name:
            yield f"{decision.kind} on {decision.decided_at}"
    for file in load_files(sorted((root / "experiments").glob("*.py"))):
        if file.experiment and file.experiment.name == wanted.name:
            yield f"the experiment of experiments/{file.path.name}"
    run_id = re.compile(rf"\d{{8}}T\d{{6}}Z-{wanted.name}-[0-9a-f]+\.json")
    for path in (root / "results").glob(f"*/*-{wanted.name}-*.json"):
        if run_id.fullmatch(path.name):
            yield f"the record {path.relative_to(root)}"


def _draft(name: str, model: str, improves: str | None, expires: date) -> Draft:
    idea = _idea(model)
    if improves is not None:
        _check_claim(improves, model)
        idea = idea.claiming(improves)
    return Draft(name, _portable(model), expires, idea)


def _portable(model: str) -> str:
    """The model as an arm names it from any folder; a null model of which nothing was said gets its noise."""
    if model == "null":
        return NULL_MODEL
    here = Path(model).expanduser()
    installed = {found.name for found in registry.installed()}
    return str(here.resolve()) if here.exists() and model not in {*BUNDLED, *installed} else model


def _idea(model: str) -> Idea:
    """8-bit KV where it fits the model, a longer chunk where it does not. Fetches nothing."""
    if is_null(model):
        if "kv_bytes_per_token" in model:
            need = "a null model that leaves kv_bytes_per_token to the candidate was needed"
            raise ExperimentInvalid(need, got=model)
        parse_null(model)
        return NULL
    try:
        directory = registry.resolve(model)
    except LabkitError:
        if model not in BUNDLED:
            raise
        return KV8 if model == "smollm2" else CHUNK
    return KV8 if _takes_8_bits(directory) else CHUNK


def _takes_8_bits(directory: Path) -> bool:
    """Whether the planner would run the draft's KV scheme on this model and backend. Loads no weights."""
    from labkit.model.backend import prepare

    backend = prepare()
    from labkit.engine.catalog import build_engine
    from labkit.model.artifact import measure
    from labkit.model.profile import read_profile
    from labkit.plan.negotiate import negotiate
    from labkit.plan.plan import Plan

    profile = read_profile(measure(directory))
    catalog = build_engine(backend.default_prefill_chunk, backend.device).catalog
    request = Request(prompt=(0,), max_tokens=1, kv=str(KV8.candidate["kv"]))
    return isinstance(negotiate(request, profile, catalog), Plan)


def _check_claim(metric: str, model: str) -> None:
    """Raise ExperimentInvalid for what is no metric, cannot be improved, or is not measured there."""
    options = claimable(model)
    if metric in options:
        return
    why, step = "", None
    if metric in METRICS and METRICS[metric].scale == "absolute":
        why = ", a distance from the baseline, which is held and not improved"
        step = f"claim another one, then add {metric} to `holds` in the file"
    elif metric in METRICS:
        why, step = ", which a null model does not have", "give --model a model with weights"
    need = "a metric to improve was needed"
    raise ExperimentInvalid(need, got=f"{metric!r}{why}", options=options, next_step=step)


def _check_valid(draft: Draft) -> None:
    """Raise ExperimentInvalid where the draft is not an experiment; nothing has been written by then."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, f"{draft.name}.py")
        path.write_text(draft.experiment(), encoding="utf-8")
        load_experiment(path)


@contextlib.contextmanager
def _undone_on_failure() -> Iterator[list[Path]]:
    """Collects what is made; what there is of it goes again where the block does not end well."""
    made: list[Path] = []
    try:
        yield made
    except BaseException:
        for path in reversed(made):
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        raise


def _write(path: Path, text: str, made: list[Path]) -> None:
    """Make a file, and its folder where that is missing; what came there meanwhile is not overwritten."""
    if not path.parent.exists():
        make_folder(path.parent)
        made.append(path.parent)
    try:
        write_new(path, text)
    except FileExistsError:
        need = "a name that no experiment of this lab has was needed"
        raise ExperimentInvalid(need, got=f"{path.stem}: {path.name} is there") from None
    made.append(path)
