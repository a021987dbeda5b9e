"""The measuring part of a run: two workers, pairs of visits, probes. Knows neither verdicts nor records."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from labkit.bench.client import CommandFailed, WorkerClient
from labkit.bench.pairs import ROLES, Role, visit_order
from labkit.bench.quiet import Probe, standing_probes, usage, visit_probes
from labkit.core.arm import Arm
from labkit.core.errors import ExperimentInvalid, WorkerFailed
from labkit.core.events import Progress, Sink
from labkit.core.metrics import METRICS
from labkit.core.records import VisitResult
from labkit.lab.experiment import Experiment

MAX_FAILED_VISITS = 3


@dataclass
class Measured:
    """What has been measured so far; it grows during a run and survives an interruption."""

    visits: list[VisitResult] = field(default_factory=list)
    opened: dict[Role, dict[str, Any]] = field(default_factory=dict)
    standing: tuple[Probe, ...] = ()

    def ok_pairs(self) -> list[int]:
        """Indices of the pairs that have a good visit on both arms."""
        return sorted(self._good("baseline") & self._good("candidate"))

    def values(self, role: Role, metric: str, pairs: list[int]) -> list[float]:
        """One value per pair, in the order of `pairs`; pairs without this metric raise KeyError."""
        by_pair = {v.pair: v.metrics for v in self.visits if v.role == role and v.status == "ok"}
        return [by_pair[pair][metric] for pair in pairs]

    def failed(self) -> list[VisitResult]:
        return [visit for visit in self.visits if visit.status == "failed"]

    def _good(self, role: Role) -> set[int]:
        return {v.pair for v in self.visits if v.role == role and v.status == "ok"}


class Bench:
    """Two workers, one per arm, and the visits made on them. A context manager that ends both workers.

    A worker that dies is a failed visit with its last output; it is started again, and the pair is made
    again at the end, at most MAX_FAILED_VISITS times.
    """

    def __init__(
        self,
        experiment: Experiment,
        measured: Measured,
        sink: Sink,
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
        timeout_s: float = 900.0,
    ) -> None:
        self._experiment, self._measured, self._sink = experiment, measured, sink
        self._environ, self._clock, self._timeout_s = environ, clock, timeout_s
        self._clients: dict[Role, WorkerClient] = {}
        self._started = clock()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()

    def open(self) -> None:
        """Start both workers, load and plan. Raises WorkerFailed with the reason of the arm that cannot."""
        self._measured.standing = standing_probes()
        for done, role in enumerate(ROLES):
            self._sink(Progress("load", done, 2, self._arm(role).label()))
            self._measured.opened[role] = self._start(role)
        self._sink(Progress("load", 2, 2))
        baseline, candidate = (self._measured.opened[role] for role in ROLES)
        if baseline["plan_hash"] == candidate["plan_hash"]:
            need = "two arms that differ in what runs are needed"
            raise ExperimentInvalid(need, got=f"one plan for both:\n{baseline['explain']}")

    def rooflines(self) -> dict[Role, dict[str, Any]]:
        """Measure both arms' ceilings and give their cost cards."""
        cards: dict[Role, dict[str, Any]] = {}
        for done, role in enumerate(ROLES):
            self._sink(Progress("ceilings", done, 2, self._arm(role).label()))
            cards[role] = self._clients[role].roofline(self._experiment.workload)
        self._sink(Progress("ceilings", 2, 2))
        return cards

    def client(self, role: Role) -> WorkerClient:
        return self._clients[role]

    def run(self, pairs: int) -> None:
        """One warm-up visit per arm, then pairs of visits until `pairs` of them are good."""
        order = visit_order(pairs + MAX_FAILED_VISITS, self._experiment.seed)
        for role in ROLES:
            self._sink(Progress("warm-up", ROLES.index(role), 2, self._arm(role).label()))
            self._visit(role, pair=-1, status="warmup")
        self._sink(Progress("warm-up", 2, 2))
        self._check_measured()
        for pair, roles in enumerate(order):
            done = len(self._measured.ok_pairs())
            if done == pairs:
                break
            for half, role in enumerate(roles):
                self._sink(Progress("visits", 2 * done + half, 2 * pairs, self._arm(role).label()))
                self._visit(role, pair, status="ok")
        self._sink(Progress("visits", 2 * pairs, 2 * pairs))

    def _check_measured(self) -> None:
        """Raise ExperimentInvalid where the warm-up shows that a claimed metric cannot be judged."""
        named = [m for m in self._experiment.hypothesis.margins() if METRICS[m].source == "visit"]
        for visit in self._measured.visits:
            bad = [m for m in named if not visit.metrics.get(m, 0) > 0] if visit.status == "warmup" else []
            if bad:
                raise ExperimentInvalid(
                    f"visits that measure {', '.join(bad)} as a positive number are needed",
                    got=f"{visit.metrics.get(bad[0], 'no value')} on {self._arm(visit.role).label()}",
                    options=[name for name, value in visit.metrics.items() if value > 0],
                )

    def _visit(self, role: Role, pair: int, status: Any) -> None:
        client, started = self._clients[role], self._clock()
        before = usage((client.pid, os.getpid()))
        base = VisitResult(len(self._measured.visits), pair, role, status, started - self._started)
        seed = self._experiment.seed * 1000 + max(pair, 0)
        try:
            sample = client.visit(self._experiment.workload, seed, base.index)
        except CommandFailed as error:
            failed = replace(base, status="failed", error=error.how, output_tail=error.tail)
            self._measured.visits.append(failed)
            self._restart(role)
            return
        probes = visit_probes(before, usage((client.pid, os.getpid())), self._clock() - started)
        self._measured.visits.append(
            replace(
                base,
                metrics=sample.metrics,
                prefill_seconds=sample.prefill_seconds,
                decode_seconds=sample.decode_seconds,
                decode_tokens=sample.decode_tokens,
                tokens_hash=sample.tokens_hash,
                quiet={
                    **{probe.name: probe.value for probe in probes},
                    "quiet": all(probe.ok for probe in probes),
                    "failed": [probe.name for probe in probes if not probe.ok],
                },
            )
        )

    def _restart(self, role: Role) -> None:
        self._clients.pop(role).close()
        failed = self._measured.failed()
        if len(failed) > MAX_FAILED_VISITS:
            need = f"at most {MAX_FAILED_VISITS} failed visits"
            raise WorkerFailed(need, got=f"{len(failed)}; the last: {failed[-1].error}")
        opened, first = self._start(role), self._measured.opened[role]
        if any(opened[key] != first[key] for key in ("plan_hash", "artifact")):
            raise WorkerFailed("a restarted worker with the plan and artifact of the first was needed")
        # The first visit of a process is a cold one.
        self._visit(role, pair=-1, status="warmup")

    def _start(self, role: Role) -> dict[str, Any]:
        client = WorkerClient(self._arm(role), self._environ, self._timeout_s)
        self._clients[role] = client
        return client.open(self._experiment.workload)

    def _arm(self, role: Role) -> Arm:
        return getattr(self._experiment, role)


def noisy_visits(measured: Measured) -> Iterator[str]:
    """What was not quiet, as phrases: standing probes first, then visits."""
    for probe in measured.standing:
        if not probe.ok:
            yield f"{probe.name} {probe.value:.2f} beyond {probe.limit:.2f} before the run ({probe.advice})"
    measuring = [v for v in measured.visits if v.status == "ok"]
    for name in dict.fromkeys(n for v in measuring for n in v.quiet.get("failed", ())):
        values = [v.quiet[name] for v in measuring if name in v.quiet["failed"]]
        yield f"{name} up to {max(values):.2f} in {len(values)} of {len(measuring)} visits"
