"""Completion of values in a shell: experiments, models, metrics. Lists names; loads no model and no mlx.

A completer answers a key that was pressed: it is quick, and where something is wrong it has nothing to offer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path

from typer import Context

from labkit.cli.root import nearest_lab

Completer = Callable[[Context, str], list[str]]


def silent_on_error(complete: Completer) -> Completer:
    """The completer, with nothing to offer where it fails: a traceback would land in the line being typed."""

    @wraps(complete)
    def quiet(ctx: Context, incomplete: str) -> list[str]:
        try:
            return complete(ctx, incomplete)
        except Exception:
            return []

    return quiet


@silent_on_error
def complete_experiment_names(ctx: Context, incomplete: str) -> list[str]:
    """Names of the experiments of the lab, as their files are named."""
    return _starting(incomplete, (path.stem for path in _files(_root(ctx))))


@silent_on_error
def complete_decidable_names(ctx: Context, incomplete: str) -> list[str]:
    """Names of open and of promoted experiments: what can be deleted."""
    root = _root(ctx)
    found = {path.stem for path in (*_files(root), *(root / "experiments" / "promoted").glob("*.py"))}
    return _starting(incomplete, sorted(found))


@silent_on_error
def complete_promoted_names(ctx: Context, incomplete: str) -> list[str]:
    """Names of promoted experiments."""
    folder = _root(ctx) / "experiments" / "promoted"
    return _starting(incomplete, sorted(path.stem for path in folder.glob("*.py")))


@silent_on_error
def complete_experiment_files(ctx: Context, incomplete: str) -> list[str]:
    """Experiment files of the lab, named from here; where none fits the shell completes files by itself."""
    return _starting(incomplete, map(_from_here, _files(_root(ctx))))


@silent_on_error
def complete_model_names(ctx: Context, incomplete: str) -> list[str]:
    """Bundled and installed models, and the null model."""
    from labkit.model.fetch import BUNDLED
    from labkit.model.registry import installed

    names = {*BUNDLED, "null", *(found.name for found in installed())}
    return _starting(incomplete, sorted(names))


@silent_on_error
def complete_kv_names(ctx: Context, incomplete: str) -> list[str]:
    """KV schemes without their options; where one needs a file, with each .json of the current folder."""
    from labkit.kv.catalog import SCHEMES

    files = sorted(path.name for path in Path().glob("*.json"))
    specs = [scheme.SPEC for scheme in SCHEMES]
    names = [[f"{s.family}:{file}" for file in files] if s.file else list(s.names()) for s in specs]
    return _starting(incomplete, (name for some in names for name in some))


@silent_on_error
def complete_metric_names(ctx: Context, incomplete: str) -> list[str]:
    """The metrics that a draft can claim of the model typed so far."""
    from labkit.lab.draft import claimable

    return _starting(incomplete, claimable(ctx.params.get("model") or ""))


@silent_on_error
def complete_metrics(ctx: Context, incomplete: str) -> list[str]:
    """Every metric there is."""
    from labkit.core.metrics import METRICS

    return _starting(incomplete, METRICS)


@silent_on_error
def complete_runs(ctx: Context, incomplete: str) -> list[str]:
    """Experiments with records, and the ids of runs, newest first."""
    from labkit.lab.reading.runs import runs

    found = runs(_root(ctx))[::-1]
    names = dict.fromkeys((*(run.experiment for run in found), *(run.run_id for run in found)))
    return _starting(incomplete, names)


def _root(ctx: Context) -> Path:
    """The lab as typed so far; the nearest one where no --root was."""
    stated = ctx.params.get("root")
    return nearest_lab() if stated in (None, Path()) else Path(stated)


def _from_here(path: Path) -> str:
    """A path as it is typed in the current folder."""
    return Path(os.path.relpath(path.resolve(), Path().resolve())).as_posix()


def _files(root: Path) -> list[Path]:
    """The experiment files of a lab, sorted; a leading underscore hides one."""
    return sorted(p for p in (root / "experiments").glob("*.py") if not p.name.startswith("_"))


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
