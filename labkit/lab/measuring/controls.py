"""Controls: runs whose effect is known before, so that the bench itself is measured. They decide nothing.

Two equal arms give the A/A floor. An arm that is slowed by a known share must be found slower by that share.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit.bench.statistics import MIN_UNITS
from labkit.core.arm import Arm
from labkit.core.errors import ExperimentInvalid
from labkit.core.hypothesis import Hypothesis
from labkit.core.metrics import METRICS
from labkit.lab.experiment import Experiment, ExperimentFile
from labkit.lab.measuring.finished import Finished
from labkit.lab.problems import least_to_decide
from labkit.model.null import is_null
from labkit.plan.values import is_number, shown

# What is watched where the experiment itself claims nothing that visits measure.
_WATCHED = {"decode_tps": 0.03, "prefill_tps": 0.03}
_WATCHED_TOGETHER = {"aggregate_tps": 0.03, "e2e_p50_s": 0.03}
_LONGEST_NAME = 64
# What labkit makes itself is nobody's to decide, so it does not run out.
NEVER = "2099-01-01"


def control(
    experiment: Experiment | ExperimentFile | str | Path,
    *,
    slowed: float | None = None,
    pairs: int | None = None,
    seed: int | None = None,
    **options: Any,
) -> Finished:
    """Run a control of an experiment on its baseline, workload and design, and keep its record.

    slowed: None for two equal arms, whose spread is the floor of later runs; a share such as 0.10 for one arm
    that takes so much longer a step, greedy, against one that takes 0. pairs: None takes 8, or
    the least that decides as many axes. seed: None takes the experiment's. options: those of `labkit.run`.
    Raises as `labkit.run` does, and ExperimentInvalid for a share that is none or an arm that cannot be
    slowed.
    """
    from labkit.lab.measuring.run import as_file, run

    held = as_file(experiment)
    asked = least_pairs(held.experiment) if pairs is None else pairs
    if is_number(asked) and asked < MIN_UNITS:
        need = f"at least {MIN_UNITS} pairs are needed, since a control of fewer shows nothing"
        raise ExperimentInvalid(need, got=shown(asked))
    made = control_of(held.experiment, slowed, asked, seed)
    return run(made, **options)


def control_of(
    experiment: Experiment, slowed: float | None, pairs: int, seed: int | None = None
) -> Experiment:
    """The control of an experiment, as an experiment of its own."""
    baseline, candidate = _arms(experiment.baseline, slowed)
    about = "two equal arms" if slowed is None else f"a step that takes {slowed:.2%} longer"
    prefix = "aa" if slowed is None else "slowed"
    return Experiment(
        name=name_for(prefix, experiment.name),
        hypothesis=Hypothesis(f"{about}: how far apart are the arms?", holds=_margins(experiment)),
        baseline=baseline,
        candidate=candidate,
        workload=experiment.workload,
        expires=NEVER,
        score=None,
        pairs=pairs,
        seed=experiment.seed if seed is None else seed,
        design=experiment.design,
        control=True,
    )


def name_for(prefix: str, name: str) -> str:
    """The name of an experiment that labkit makes of something by that name, as long as a name may be."""
    return f"{prefix}-{name}"[:_LONGEST_NAME].rstrip("-")


def least_pairs(experiment: Experiment) -> int:
    """The fewest pairs that a control of an experiment can be judged on."""
    return max(MIN_UNITS, least_to_decide(len(_margins(experiment))))


def _arms(baseline: Arm, slowed: float | None) -> tuple[Arm, Arm]:
    if slowed is None:
        return baseline, baseline
    need = "a share of 0 or more by which each step takes longer was needed"
    if not is_number(slowed) or slowed < 0:
        raise ExperimentInvalid(need, got=shown(slowed), next_step="slowed=0.10")
    if is_null(baseline.model) or baseline.method not in (None, "autoregressive"):
        need = "an arm of the autoregressive method with weights is needed, since only that can be slowed"
        raise ExperimentInvalid(need, got=baseline.label())
    return replace(baseline, method="slowed:0"), replace(baseline, method=f"slowed:{slowed:.6g}")


def _margins(experiment: Experiment) -> dict[str, float]:
    margins = experiment.hypothesis.margins()
    own = {name: m for name, m in margins.items() if METRICS[name].source == "visit"}
    return own or dict(_WATCHED_TOGETHER if experiment.workload.several else _WATCHED)
