"""Alone: what a load does to one arm: percentiles over a few visits, with no verdict and no record."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labkit.bench.client import WorkerClient
from labkit.bench.lease import device_lease, lease_path
from labkit.bench.quiet import standing_probes, usage, visit_probes
from labkit.core.arm import Arm, Workload
from labkit.core.errors import ExperimentInvalid
from labkit.core.events import Progress, Sink
from labkit.core.metrics import METRICS
from labkit.kv.config_file import pinned_arm
from labkit.lab.workload_problems import arm_problems, workload_problems
from labkit.model.null import is_null
from labkit.model.registry import get
from labkit.plan.values import is_count, shown
from labkit.schedule.of_workload import with_trace


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric over the visits: the median with the least and the most."""

    metric: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Alone:
    """What was measured. label: the arm's. plan: as lines of text. visits: metrics of each, warm-up left out.

    noisy: what was not quiet, as phrases; empty on a quiet machine.
    """

    label: str
    workload: Workload
    plan: str
    visits: tuple[dict[str, float], ...]
    noisy: tuple[str, ...] = ()

    def figures(self) -> tuple[Figure, ...]:
        """Every metric that each visit measured, in the order of the table of metrics."""
        return tuple(self._figures())

    def _figures(self) -> Iterator[Figure]:
        for name in METRICS:
            values = [visit[name] for visit in self.visits if name in visit]
            if len(values) == len(self.visits):
                yield Figure(name, statistics.median(values), min(values), max(values))

    def to_json(self) -> dict[str, Any]:
        figures = {figure.metric: asdict(figure) for figure in self.figures()}
        workload = self.workload.portable().identity()
        return {**asdict(self), "workload": workload, "figures": figures}


def load_alone(
    arm: Arm,
    workload: Workload,
    *,
    visits: int,
    sink: Sink,
    environ: Mapping[str, str] | None = None,
    lease: Path | None = None,
) -> Alone:
    """Run a load on one arm, once to warm up and then `visits` times, in a worker of its own.

    Raises ExperimentInvalid for a workload or arm that contradicts itself, TraceInvalid for a trace that is
    none, and WorkerFailed where the arm cannot run, all before anything is measured.
    """
    _check(arm, workload, visits)
    arm, workload = pinned_arm(arm), with_trace(workload)
    if not is_null(arm.model):
        get(arm.model, sink=sink)
    with device_lease(f"labkit bench load {arm.model}", lease or lease_path(), sink=sink):
        standing = [f"{p.name} ({p.advice})" for p in standing_probes() if not p.ok]
        with closing(WorkerClient(arm, os.environ if environ is None else environ)) as client:
            sink(Progress("load", 0, 1, arm.label()))
            opened = client.open(workload)
            sink(Progress("load", 1, 1))
            found, noisy = _visit(client, workload, visits, sink)
    label = arm.label(opened["artifact"]["dtype"])
    return Alone(label, workload, opened["explain"], found, (*standing, *noisy))


def _check(arm: Arm, workload: Workload, visits: int) -> None:
    wrong = [*workload_problems(workload), *arm_problems("arm", arm)]
    if not is_count(visits):
        wrong.append(f"visits: a whole number of at least 1 is needed, got {shown(visits)}")
    if wrong:
        lines = "\n".join(f"- {text}" for text in wrong)
        raise ExperimentInvalid(f"a load that can be measured is needed:\n{lines}")


def _visit(
    client: WorkerClient, workload: Workload, visits: int, sink: Sink
) -> tuple[tuple[dict[str, float], ...], tuple[str, ...]]:
    """The metrics of each visit after the warm-up, and the probes that found one noisy."""
    found: list[dict[str, float]] = []
    noisy: dict[str, int] = {}
    pids, start = (client.pid, os.getpid()), usage(())
    for index in range(visits + 1):
        sink(Progress("visits", index, visits + 1))
        before, began = usage(pids), time.monotonic()
        sample = client.visit(workload, max(index - 1, 0), index)
        probes = visit_probes(before, usage(pids), time.monotonic() - began, start)
        if index:
            found.append(sample.metrics)
            for probe in probes:
                noisy[probe.name] = noisy.get(probe.name, 0) + (not probe.ok)
    sink(Progress("visits", visits + 1, visits + 1))
    return tuple(found), tuple(f"{name} in {n} of {visits} visits" for name, n in noisy.items() if n)
