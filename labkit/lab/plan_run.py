"""Plan a run: a short pilot, then how many pairs each axis needs. Its samples are not used again."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from labkit.bench.lease import device_lease, lease_path
from labkit.bench.power import plan_from_pilot, plan_pairs
from labkit.core.errors import ExperimentInvalid
from labkit.core.events import Sink, silent
from labkit.core.metrics import METRICS
from labkit.lab.experiment import Experiment, load_experiment
from labkit.lab.measure import Bench, Measured
from labkit.lab.recipes import resolve_arms
from labkit.lab.run import fetch_models
from labkit.store.lab_folder import find_lab

PILOT_LEAST = 3


@dataclass(frozen=True, slots=True)
class AxisPlan:
    """sd: upper 80% bound of the SD of a pair's log ratio. effect: improvement seen in the pilot, less 1."""

    metric: str
    title: str
    goal: str
    margin: float
    sd: float
    effect: float
    pairs: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """seconds_per_pair: of the pilot's good pairs."""

    experiment: str
    file: str
    pilot_pairs: int
    seconds_per_pair: float
    axes: tuple[AxisPlan, ...]

    def sentence(self) -> str:
        """How many pairs to run, and for how long."""
        counts = [axis.pairs for axis in self.axes if axis.pairs is not None]
        if not counts:
            return "No number of pairs settles these margins at the effects seen: see why, axis by axis."
        most = max(counts)
        minutes = most * self.seconds_per_pair / 60
        rest = "" if len(counts) == len(self.axes) else " (the axes marked - stay unresolved)"
        return f"labkit run {self.file} --pairs {most}: about {minutes:.1f} minutes of visits{rest}"


def plan_from_file(
    path: Path,
    *,
    root: Path | None = None,
    pilot_pairs: int = 4,
    sink: Sink = silent,
    environ: Mapping[str, str] | None = None,
    lease: Path | None = None,
) -> PlannedRun:
    """Run `pilot_pairs` pairs of the experiment in a file and plan from them.

    root: the lab whose recipes count; None takes the nearest folder upwards with experiments/.
    Raises as a run does before it measures, and ExperimentInvalid for a pilot of fewer than 3 pairs or an
    experiment with no axis that visits measure.
    """
    experiment = load_experiment(path).experiment
    replace(experiment, pairs=pilot_pairs).validate()
    if pilot_pairs < PILOT_LEAST:
        need = f"a pilot of at least {PILOT_LEAST} pairs is needed to see how much pairs vary"
        raise ExperimentInvalid(need, got=pilot_pairs)
    if not _visit_axes(experiment):
        raise ExperimentInvalid(
            "an axis that visits measure is needed: on no other does the number of pairs bear",
            got=", ".join(experiment.hypothesis.margins()),
            options=[name for name, metric in METRICS.items() if metric.source == "visit"],
        )
    experiment = resolve_arms(experiment, root or find_lab(), sink).experiment
    measured = Measured()
    held = device_lease(f"labkit plan-run {experiment.name}", lease or lease_path(), sink=sink)
    bench = Bench(experiment, measured, sink, os.environ if environ is None else environ)
    fetch_models(experiment, sink)
    with held, bench:
        bench.open()
        bench.run(pilot_pairs)
    return plan(experiment, measured, str(path))


def plan(experiment: Experiment, measured: Measured, file: str = "FILE") -> PlannedRun:
    """The pairs each visit axis needs; score and artifact axes need no pairs and are left out."""
    pairs = measured.ok_pairs()
    visits = [v for v in measured.visits if v.status == "ok" and v.pair in pairs]
    seconds = sum(sum(v.prefill_seconds) + sum(v.decode_seconds) for v in visits)
    axes = tuple(_axis(experiment, measured, pairs, metric) for metric in _visit_axes(experiment))
    return PlannedRun(experiment.name, file, len(pairs), seconds / max(len(pairs), 1), axes)


def _visit_axes(experiment: Experiment) -> list[str]:
    return [m for m in experiment.hypothesis.margins() if METRICS[m].source == "visit"]


def _axis(experiment: Experiment, measured: Measured, pairs: list[int], metric: str) -> AxisPlan:
    about, margins = METRICS[metric], experiment.hypothesis.margins()
    baseline = np.log(measured.values("baseline", metric, pairs))
    change = np.log(measured.values("candidate", metric, pairs)) - baseline
    improvement = change if about.better == "higher" else -change
    sd, effect = plan_from_pilot(improvement.tolist()), math.expm1(float(np.median(improvement)))
    goal = "improves" if metric in experiment.hypothesis.improves else "holds"
    limit = math.log1p(margins[metric])
    inside = abs(math.log1p(effect)) < limit
    # A held axis that looks like a tie is planned at a true tie, the case its author hopes for.
    if goal == "holds" and inside:
        claim, planned = "equivalent", 0.0
    else:
        claim, planned = ("better" if effect > 0 else "worse") if not inside else "equivalent", effect
    found = plan_pairs(sd, margins[metric], planned, claim, axes=len(margins))
    return AxisPlan(metric, about.title, goal, margins[metric], sd, effect, found.pairs, found.reason)
