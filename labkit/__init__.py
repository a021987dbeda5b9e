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
    from labkit.core.spec import KVSpec
    from labkit.core.taps import Taps
    from labkit.engine.load import load
    from labkit.engine.resume import resume
    from labkit.lab.deciding.burial import delete
    from labkit.lab.deciding.check import check
    from labkit.lab.deciding.judgement import judge
    from labkit.lab.deciding.promotion import promote
    from labkit.lab.deciding.recipes import resolve, session
    from labkit.lab.deciding.renewal import renew
    from labkit.lab.deciding.revalidate import revalidate
    from labkit.lab.experiment import Experiment, ScoreText
    from labkit.lab.measuring.controls import control
    from labkit.lab.measuring.plan_run import plan_run
    from labkit.lab.measuring.run import run
    from labkit.lab.measuring.score import score
    from labkit.lab.reading.compare import compare
    from labkit.lab.reading.pareto import pareto
    from labkit.lab.reading.question import sql
    from labkit.lab.reading.show import record
    from labkit.lab.reading.timeline import history
    from labkit.lab.verifying.fit import fit
    from labkit.lab.verifying.verify import verify
    from labkit.model.backend import prepare
    from labkit.quant.catalog import quantize
    from labkit.quant.recipe import LayerRule, QuantRecipe
    from labkit.schedule.arrivals import Arrival, poisson
    from labkit.schedule.policy import Decode, PolicySpec, Prefill
    from labkit.schedule.simulate import Costs, simulate
    from labkit.store.query import results

__version__ = "0.1.0"

__all__ = [
    "Arm",
    "Arrival",
    "Costs",
    "Decode",
    "Experiment",
    "Hypothesis",
    "KVSpec",
    "LabkitError",
    "LayerRule",
    "PolicySpec",
    "Prefill",
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
    "poisson",
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
    "simulate",
    "sql",
    "verify",
]

_HOMES = {
    "Arm": "labkit.core.arm",
    "Arrival": "labkit.schedule.arrivals",
    "Costs": "labkit.schedule.simulate",
    "Decode": "labkit.schedule.policy",
    "Experiment": "labkit.lab.experiment",
    "Hypothesis": "labkit.core.hypothesis",
    "KVSpec": "labkit.core.spec",
    "LabkitError": "labkit.core.errors",
    "LayerRule": "labkit.quant.recipe",
    "PolicySpec": "labkit.schedule.policy",
    "Prefill": "labkit.schedule.policy",
    "QuantRecipe": "labkit.quant.recipe",
    "Sampling": "labkit.core.sampling",
    "ScoreText": "labkit.lab.experiment",
    "Taps": "labkit.core.taps",
    "Workload": "labkit.core.arm",
    "check": "labkit.lab.deciding.check",
    "compare": "labkit.lab.reading.compare",
    "control": "labkit.lab.measuring.controls",
    "delete": "labkit.lab.deciding.burial",
    "fit": "labkit.lab.verifying.fit",
    "history": "labkit.lab.reading.timeline",
    "judge": "labkit.lab.deciding.judgement",
    "load": "labkit.engine.load",
    "pareto": "labkit.lab.reading.pareto",
    "plan_run": "labkit.lab.measuring.plan_run",
    "poisson": "labkit.schedule.arrivals",
    "prepare": "labkit.model.backend",
    "promote": "labkit.lab.deciding.promotion",
    "quantize": "labkit.quant.catalog",
    "record": "labkit.lab.reading.show",
    "renew": "labkit.lab.deciding.renewal",
    "resolve": "labkit.lab.deciding.recipes",
    "results": "labkit.store.query",
    "resume": "labkit.engine.resume",
    "revalidate": "labkit.lab.deciding.revalidate",
    "run": "labkit.lab.measuring.run",
    "score": "labkit.lab.measuring.score",
    "session": "labkit.lab.deciding.recipes",
    "simulate": "labkit.schedule.simulate",
    "sql": "labkit.lab.reading.question",
    "verify": "labkit.lab.verifying.verify",
}


def __getattr__(name: str) -> Any:
    """The public name's value, from the module that holds it. Raise AttributeError for any other name."""
    if name not in _HOMES:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
