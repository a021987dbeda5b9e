"""labkit: a research lab and benchmark workbench for language models on MLX.

The public names load on first use: importing labkit imports neither mlx nor a plotting or frame library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.core.arm import Arm, Workload
    from labkit.core.errors import LabkitError
    from labkit.core.hypothesis import Hypothesis
    from labkit.core.sampling import Sampling
    from labkit.core.taps import Taps
    from labkit.engine.load import load
    from labkit.engine.resume import resume
    from labkit.lab.burial import delete
    from labkit.lab.check import check
    from labkit.lab.compare import compare
    from labkit.lab.controls import control
    from labkit.lab.experiment import Experiment, ScoreText
    from labkit.lab.fit import fit
    from labkit.lab.judgement import judge
    from labkit.lab.pareto import pareto
    from labkit.lab.plan_run import plan_run
    from labkit.lab.promotion import promote
    from labkit.lab.question import sql
    from labkit.lab.recipes import resolve, session
    from labkit.lab.renewal import renew
    from labkit.lab.revalidate import revalidate
    from labkit.lab.run import run
    from labkit.lab.score import score
    from labkit.lab.show import record
    from labkit.lab.timeline import history
    from labkit.lab.verify import verify
    from labkit.model.backend import prepare
    from labkit.quant.catalog import quantize
    from labkit.quant.recipe import LayerRule, QuantRecipe
    from labkit.store.query import results

__version__ = "0.1.0"

__all__ = [
    "Arm",
    "Experiment",
    "Hypothesis",
    "LabkitError",
    "LayerRule",
    "QuantRecipe",
    "Sampling",
    "ScoreText",
    "Taps",
    "Workload",
    "__version__",
    "check",
    "compare",
    "control",
    "delete",
    "fit",
    "history",
    "judge",
    "load",
    "pareto",
    "plan_run",
    "prepare",
    "promote",
    "quantize",
    "record",
    "renew",
    "resolve",
    "results",
    "resume",
    "revalidate",
    "run",
    "score",
    "session",
    "sql",
    "verify",
]

_HOMES = {
    "Arm": "labkit.core.arm",
    "Experiment": "labkit.lab.experiment",
    "Hypothesis": "labkit.core.hypothesis",
    "LabkitError": "labkit.core.errors",
    "LayerRule": "labkit.quant.recipe",
    "QuantRecipe": "labkit.quant.recipe",
    "Sampling": "labkit.core.sampling",
    "ScoreText": "labkit.lab.experiment",
    "Taps": "labkit.core.taps",
    "Workload": "labkit.core.arm",
    "check": "labkit.lab.check",
    "compare": "labkit.lab.compare",
    "control": "labkit.lab.controls",
    "delete": "labkit.lab.burial",
    "fit": "labkit.lab.fit",
    "history": "labkit.lab.timeline",
    "judge": "labkit.lab.judgement",
    "load": "labkit.engine.load",
    "pareto": "labkit.lab.pareto",
    "plan_run": "labkit.lab.plan_run",
    "prepare": "labkit.model.backend",
    "promote": "labkit.lab.promotion",
    "quantize": "labkit.quant.catalog",
    "record": "labkit.lab.show",
    "renew": "labkit.lab.renewal",
    "resolve": "labkit.lab.recipes",
    "results": "labkit.store.query",
    "resume": "labkit.engine.resume",
    "revalidate": "labkit.lab.revalidate",
    "run": "labkit.lab.run",
    "score": "labkit.lab.score",
    "session": "labkit.lab.recipes",
    "sql": "labkit.lab.question",
    "verify": "labkit.lab.verify",
}


def __getattr__(name: str) -> Any:
    """The public name's value, from the module that holds it. Raise AttributeError for any other name."""
    if name not in _HOMES:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
