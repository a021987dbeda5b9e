"""Problems: what is wrong with an experiment as it is written, before anything is loaded or measured.

Knows fields and metrics; models, KV schemes and sampling are the planner's to judge.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, get_args

from labkit.bench.power import MAX_PAIRS
from labkit.bench.statistics import MIN_UNITS
from labkit.bench.verdict import ALPHA
from labkit.core.arm import Arm, Workload
from labkit.core.hypothesis import Hypothesis
from labkit.core.metrics import METRICS
from labkit.core.sampling import Sampling
from labkit.evals.text import Split
from labkit.lab.workload_problems import arm_problems, metric_problems, workload_problems
from labkit.plan.values import is_number, shown

if TYPE_CHECKING:
    from labkit.lab.experiment import Experiment

Design = Literal["process-pair", "fresh"]
DESIGNS: tuple[Design, ...] = get_args(Design)
FRESH_METRICS = ("load_s", "cold_start_s", "warm_start_s", "compile_s")
VERDICTS = ("better", "worse", "equivalent", "unresolved")
KINDS: Mapping[str, type] = {
    "name": str,
    "hypothesis": Hypothesis,
    "hypothesis.improves": Mapping,
    "hypothesis.holds": Mapping,
    "baseline": Arm,
    "baseline.model": str,
    "baseline.kv": str,
    "baseline.sampling": Sampling,
    "candidate": Arm,
    "candidate.model": str,
    "candidate.kv": str,
    "candidate.sampling": Sampling,
    "workload": Workload,
    "expires": str,
    "expects": Mapping,
    "score.name": str,
}


def problems(experiment: Experiment) -> Iterator[str]:
    """Every problem as `field: what is needed, got what`; wrong types hide the problems behind them."""
    misshapen = list(_misshapen(experiment))
    yield from misshapen or _contradictions(experiment)


def _misshapen(experiment: Experiment) -> Iterator[str]:
    for path, kind in KINDS.items():
        value: Any = experiment
        for part in path.split("."):
            value = getattr(value, part, None)
        if not isinstance(value, kind) and not (path == "score.name" and experiment.score is None):
            article = "an" if kind.__name__[0] in "AEIOU" else "a"
            yield f"{path}: {article} {kind.__name__} is needed, got {value!r}"


def _contradictions(experiment: Experiment) -> Iterator[str]:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", experiment.name):
        yield f"name: lower-case letters, digits and hyphens are needed, got {experiment.name!r}"
    try:
        date.fromisoformat(experiment.expires)
    except ValueError:
        yield f"expires: a date such as 2027-02-01 is needed, got {experiment.expires!r}"
    yield from _axis_problems(experiment.hypothesis, experiment.expects)
    if experiment.baseline == experiment.candidate and not experiment.control:
        yield "candidate: an arm that differs from the baseline is needed, got the same arm"
    yield from _arm_problems(experiment)
    wrong = list(workload_problems(experiment.workload))
    yield from wrong
    yield from _count_problems(experiment)
    yield from _score_problems(experiment)
    if not wrong:
        yield from metric_problems(experiment.workload, experiment.hypothesis.margins())


def _axis_problems(hypothesis: Hypothesis, expects: Mapping[str, str]) -> Iterator[str]:
    if not hypothesis.margins():
        yield "hypothesis: at least one metric to improve or hold is needed, got none"
    for metric, margin in hypothesis.margins().items():
        if metric not in METRICS:
            yield f"hypothesis: {metric!r} is not a metric; options: {', '.join(METRICS)}"
        if not (isinstance(margin, int | float) and math.isfinite(margin) and margin > 0):
            yield f"hypothesis: the margin of {metric!r} must be a positive number, got {margin!r}"
    for metric in hypothesis.improves:
        if metric in METRICS and METRICS[metric].scale == "absolute" and METRICS[metric].source == "score":
            yield f"hypothesis: {metric!r} is a distance from the baseline: it can be held, not improved"
    for metric in set(hypothesis.improves) & set(hypothesis.holds):
        yield f"hypothesis: {metric!r} cannot be both improved and held"
    for metric, verdict in expects.items():
        if metric not in hypothesis.margins() or verdict not in VERDICTS:
            options = ", ".join(VERDICTS)
            yield f"expects: a metric of the hypothesis and one of {options}, got {metric}={verdict!r}"


def _arm_problems(experiment: Experiment) -> Iterator[str]:
    """Only what could not even be sent to a worker; the rest is the planner's, with its options."""
    for role in ("baseline", "candidate"):
        arm = getattr(experiment, role)
        for name, value in (("blas", arm.blas), ("method", arm.method), ("recipe", arm.recipe)):
            if value is not None and not isinstance(value, str):
                yield f"{role}.{name}: a name or None is needed, got {value!r}"
        yield from arm_problems(role, arm)
        for name in (field.name for field in fields(arm.sampling)):
            yield from _sampling_problems(f"{role}.sampling.{name}", getattr(arm.sampling, name))


def _sampling_problems(path: str, value: Any) -> Iterator[str]:
    if path.endswith((".logit_bias", ".xtc_special_tokens")):
        if not isinstance(value, tuple) or not all(map(_numeric, value)):
            yield f"{path}: token ids with finite numbers are needed, got {shown(value)}"
    elif not is_number(value):
        yield f"{path}: a finite number is needed, got {shown(value)}"


def _numeric(item: Any) -> bool:
    """Whether it is a finite number, or a pair of them."""
    return is_number(item) or (isinstance(item, tuple) and len(item) == 2 and all(map(is_number, item)))


def _count_problems(experiment: Experiment) -> Iterator[str]:
    if not _whole(experiment.pairs) or experiment.pairs < 1:
        yield f"pairs: a whole number of at least 1 is needed, got {experiment.pairs!r}"
    elif experiment.pairs > MAX_PAIRS:
        yield f"pairs: at most {MAX_PAIRS} are possible, got {experiment.pairs}"
    # Where every score is as clear as can be, Holm's steps for the visits are those of the visits alone.
    axes = sum(METRICS[m].source == "visit" for m in experiment.hypothesis.tested())
    if _whole(experiment.pairs) and MIN_UNITS <= experiment.pairs < least_to_decide(axes):
        least = least_to_decide(axes)
        yield f"pairs: at least {least} are needed to decide {axes} visit axes (Holm), got {experiment.pairs}"
    yield from _design_problems(experiment)
    if not _whole(experiment.seed) or experiment.seed < 0:
        yield f"seed: a whole number of at least 0 is needed, got {experiment.seed!r}"


def _design_problems(experiment: Experiment) -> Iterator[str]:
    if experiment.design not in DESIGNS:
        yield f"design: one of {', '.join(DESIGNS)} is needed, got {shown(experiment.design)}"
    if not isinstance(experiment.control, bool):
        yield f"control: True or False is needed, got {shown(experiment.control)}"
    if not _whole(experiment.looks) or experiment.looks < 1:
        yield f"looks: a whole number of at least 1 is needed, got {shown(experiment.looks)}"
    elif _whole(experiment.pairs) and experiment.looks > max(1, experiment.pairs // MIN_UNITS):
        most = max(1, experiment.pairs // MIN_UNITS)
        got = f"{experiment.pairs} pairs allow {most}, got {experiment.looks}"
        yield f"looks: at least {MIN_UNITS} pairs before each are needed; {got}"
    fresh = [m for m in experiment.hypothesis.margins() if m in FRESH_METRICS]
    if fresh and experiment.design != "fresh":
        yield f"design: 'fresh' is needed to measure {', '.join(fresh)}, got {shown(experiment.design)}"


def least_to_decide(axes: int) -> int:
    """The fewest pairs whose smallest signed-rank p, 2 / 2^n, passes the hardest Holm step of `axes` axes."""
    return math.ceil(1 + math.log2(max(axes, 1) / ALPHA))


def _score_problems(experiment: Experiment) -> Iterator[str]:
    score = experiment.score
    if score is None:
        if experiment.wants_quality():
            yield "score: a text to score on is needed where a quality metric is claimed, got None"
        return
    if score.split not in get_args(Split):
        yield f"score.split: one of {', '.join(get_args(Split))} is needed, got {score.split!r}"
    for name, least in (("windows", 1), ("window_tokens", 3)):
        value = getattr(score, name)
        if not _whole(value) or value < least:
            yield f"score.{name}: a whole number of at least {least} is needed, got {value!r}"


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
