"""Pair: the experiment of two arms under one load that no file states. Runs nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePath

from labkit.core.arm import Arm, Workload
from labkit.core.canonical import digest, stated
from labkit.core.errors import ExperimentInvalid
from labkit.core.hypothesis import Hypothesis
from labkit.core.metrics import DEFAULT_MARGINS, METRICS
from labkit.lab.experiment import Experiment
from labkit.lab.measuring.controls import NEVER, name_for
from labkit.lab.workload_problems import metric_problems
from labkit.plan.values import is_number, shown

_LONGEST_SLUG, _DIGITS = 40, 6
# What a load is judged by, as far as its workload gives it.
AXES = (
    *("aggregate_tps", "aggregate_decode_tps", "ttft_p50_s", "tpot_p50_s", "e2e_p50_s"),
    "goodput_rps",
)


def load_pair(
    baseline: Arm, candidate: Arm, workload: Workload, pairs: int, margin: float | None = None, seed: int = 0
) -> Experiment:
    """The experiment `load-<model>-<digits>`: whether the candidate serves a load as the baseline does.

    margin: of every axis that is compared by its ratio; None takes the default ones. It has no file and
    decides nothing, so it never expires.
    """
    if margin is not None and not (is_number(margin) and 0 < margin < 1):
        need = "margin: a share above 0 and below 1, such as 0.05 for 5%, is needed"
        raise ExperimentInvalid(need, got=shown(margin))
    slug = re.sub(r"[^a-z0-9]+", "-", candidate.model.lower().rpartition("/")[2]).strip("-")
    asked = _digits(baseline, candidate, workload)
    model = slug[:_LONGEST_SLUG].rstrip("-") or "model"
    return Experiment(
        name=name_for("load", f"{model}-{asked}"),
        hypothesis=Hypothesis(
            f"{_named(candidate)} serves {workload.label()} as {_named(baseline)} does",
            holds={name: _margin(name, margin) for name in axes_of(workload)},
        ),
        baseline=baseline,
        candidate=candidate,
        workload=workload,
        expires=NEVER,
        score=None,
        pairs=pairs,
        seed=seed,
    )


def _digits(baseline: Arm, candidate: Arm, workload: Workload) -> str:
    """Of the two arms and the load, so that each question has a history of its own."""
    arms = [stated(replace(arm, model=PurePath(arm.model).name)) for arm in (baseline, candidate)]
    return digest([*arms, workload.hash()])[:_DIGITS]


def axes_of(workload: Workload) -> tuple[str, ...]:
    """The axes that a workload gives samples for."""
    return tuple(name for name in AXES if not any(metric_problems(workload, {name: 0.0})))


def _named(arm: Arm) -> str:
    """Its label without the folders of its model, which are no record's business."""
    return replace(arm, model=PurePath(arm.model).name).label()


def _margin(name: str, margin: float | None) -> float:
    by_ratio = METRICS[name].scale == "ratio"
    return margin if by_ratio and margin is not None else DEFAULT_MARGINS[name]
