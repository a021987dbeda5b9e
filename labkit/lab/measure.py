"""The measuring part of a run: two workers, pairs of visits, probes. Knows neither verdicts nor records."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from labkit.bench.client import CommandFailed, WorkerClient
from labkit.bench.pairs import ROLES, Role, visit_order
from labkit.bench.quiet import Usage, standing_probes, usage, visit_probes
from labkit.core.arm import Arm
from labkit.core.errors import ExperimentInvalid, JournalInvalid, WorkerFailed
from labkit.core.events import Progress, Sink
from labkit.core.metrics import METRICS
from labkit.core.records import VisitResult
from labkit.engine.shield import uninterrupted
from labkit.lab.experiment import Experiment
from labkit.lab.measured import Measured

MAX_FAILED_VISITS = 3
# What must not change under a run, by its name in a worker's answer.
_SAME = {"plan_hash": "plan", "artifact": "artifact", "tokenizer_hash": "tokenizer"}


class Bench:
    """Two workers, one per arm, and the visits made on them. A context manager that ends both workers.

    A worker that dies is a failed visit with its last output; it is started again, and the pair is made
    again at the end, at most MAX_FAILED_VISITS times. Where `measured` holds visits of an earlier process,
    they count: what is missing is measured.

    keep: called with each visit once it has ended, and before the next begins. elapsed_s: how long ago the
    run began, for one that goes on.
    """

    def __init__(
        self,
        experiment: Experiment,
        measured: Measured,
        sink: Sink,
        environ: Mapping[str, str],
        keep: Callable[[VisitResult], None] = lambda _: None,
        elapsed_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        timeout_s: float = 900.0,
    ) -> None:
        self._experiment, self._measured, self._sink = experiment, measured, sink
        self._environ, self._keep, self._clock, self._timeout_s = environ, keep, clock, timeout_s
        self._clients: dict[Role, WorkerClient] = {}
        self._started = clock() - elapsed_s
        self._failed_before = len(measured.failed())
        self._began: Usage | None = None

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()

    def open(self) -> None:
        """Start both workers, load and plan. Raises WorkerFailed with the reason of the arm that cannot, and
        JournalInvalid where an arm is no longer what the visits so far ran."""
        self._measured.standing += standing_probes()
        self._began = usage(())
        for done, role in enumerate(ROLES):
            self._sink(Progress("load", done, 2, self.arm(role).label()))
            opened = self._start(role)
            changed = _changed(opened, self._measured.opened.setdefault(role, opened))
            if changed:
                need = f"the {changed[0]} that the unfinished run's {role} began with was needed"
                raise JournalInvalid(need, got="another one now", next_step="run it anew, without --resume")
        self._sink(Progress("load", 2, 2))
        baseline, candidate = (self._measured.opened[role] for role in ROLES)
        if baseline["plan_hash"] == candidate["plan_hash"]:
            need = "two arms that differ in what runs are needed"
            raise ExperimentInvalid(need, got=f"one plan for both:\n{baseline['explain']}")

    def rooflines(self) -> dict[Role, dict[str, Any]]:
        """Measure both arms' ceilings and give their cost cards."""
        cards: dict[Role, dict[str, Any]] = {}
        for done, role in enumerate(ROLES):
            self._sink(Progress("ceilings", done, 2, self.arm(role).label()))
            cards[role] = self._clients[role].roofline(self._experiment.workload)
        self._sink(Progress("ceilings", 2, 2))
        return cards

    def client(self, role: Role) -> WorkerClient:
        return self._clients[role]

    def run(self, pairs: int) -> None:
        """One warm-up visit per arm, then pairs of visits until `pairs` are good; nothing where they are."""
        first, left = self._measured.next_pair(), pairs - len(self._measured.ok_pairs())
        if left <= 0:
            return
        order = visit_order(first + left + MAX_FAILED_VISITS, self._coins())
        for role in ROLES:
            self._sink(Progress("warm-up", ROLES.index(role), 2, self.arm(role).label()))
            self._visit(role, pair=-1, status="warmup")
        self._sink(Progress("warm-up", 2, 2))
        self._check_measured()
        for pair, roles in enumerate(order[first:], start=first):
            done = len(self._measured.ok_pairs())
            if done == pairs:
                break
            for half, role in enumerate(roles):
                self._sink(Progress("visits", 2 * done + half, 2 * pairs, self.arm(role).label()))
                self._visit(role, pair, status="ok")
        self._sink(Progress("visits", 2 * pairs, 2 * pairs))

    def _coins(self) -> str:
        """What seeds the order: known before the run, and another for every experiment."""
        return f"{self._experiment.name}/{self._experiment.seed}"

    def _check_measured(self) -> None:
        """Raise ExperimentInvalid where the warm-up shows that a claimed metric cannot be judged."""
        named = [m for m in self._experiment.hypothesis.margins() if METRICS[m].source == "visit"]
        for visit in self._measured.visits:
            bad = [m for m in named if not visit.metrics.get(m, 0) > 0] if visit.status == "warmup" else []
            if bad:
                raise ExperimentInvalid(
                    f"visits that measure {', '.join(bad)} as a positive number are needed",
                    got=f"{visit.metrics.get(bad[0], 'no value')} on {self.arm(visit.role).label()}",
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
            self._ended(replace(base, status="failed", error=error.how, output_tail=error.tail))
            self._restart(role)
            return
        after, seconds = usage((client.pid, os.getpid())), self._clock() - started
        probes = visit_probes(before, after, seconds, self._began)
        self._ended(
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

    def _ended(self, visit: VisitResult) -> None:
        with uninterrupted():  # a visit is in both or in neither
            self._measured.visits.append(visit)
            self._keep(visit)

    def _restart(self, role: Role) -> None:
        self._clients.pop(role).close()
        failed = self._measured.failed()[self._failed_before :]
        if len(failed) > MAX_FAILED_VISITS:
            need = f"at most {MAX_FAILED_VISITS} failed visits"
            raise WorkerFailed(need, got=f"{len(failed)}; the last: {failed[-1].error}")
        if _changed(self._start(role), self._measured.opened[role]):
            raise WorkerFailed("a restarted worker with the plan and artifact of the first was needed")
        # The first visit of a process is a cold one.
        self._visit(role, pair=-1, status="warmup")

    def _start(self, role: Role) -> dict[str, Any]:
        client = WorkerClient(self.arm(role), self._environ, self._timeout_s)
        self._clients[role] = client
        return client.open(self._experiment.workload)

    def arm(self, role: Role) -> Arm:
        return getattr(self._experiment, role)


def _changed(opened: Mapping[str, Any], first: Mapping[str, Any]) -> list[str]:
    """What a worker opened that it had not the first time."""
    return [name for key, name in _SAME.items() if opened[key] != first[key]]
