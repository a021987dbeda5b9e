"""The measuring part of a run: pairs of visits and probes. Knows neither verdicts nor records."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

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
from labkit.lab.measuring.measured import Measured
from labkit.lab.measuring.workers import Visited, workers_of

MAX_FAILED_VISITS = 3
# A quarter of a run's visits may be made again because something else used the machine, and at least four;
# each of them twice at most, so that one long disturbance does not use up what later ones need.
NOISY_SHARE, NOISY_LEAST, NOISY_EACH = 0.25, 4, 2
# What must not change under a run, by its name in a worker's answer.
_SAME = {"plan_hash": "plan", "artifact": "artifact", "tokenizer_hash": "tokenizer"}


class Bench:
    """The visits of a run, on workers as its design asks for. A context manager that ends them.

    A worker that dies is a failed visit with its last output; the pair is made again at the end, at most
    MAX_FAILED_VISITS times in a run, over all its resumptions. A visit that a probe finds noisy is made again
    at once, as long as there are not too many; which visits those are, the probes alone say and never what
    was measured. Visits of an earlier process in `measured` count: what is missing is measured.

    keep: called with each visit once it has ended, and before the next begins. elapsed_s: how long ago the
    run began, for one that goes on. run_id: what names the run over its resumptions.
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
        run_id: str = "",
    ) -> None:
        self._experiment, self._measured, self._sink = experiment, measured, sink
        self._keep, self._clock = keep, clock
        self._coins = coins(experiment, run_id)
        self._workers = workers_of(experiment, environ, timeout_s, self._opened)
        self._known = frozenset(measured.opened)
        self._started = clock() - elapsed_s
        self._began: Usage | None = None
        self._warm = False

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.close()

    def open(self) -> None:
        """Start a worker of each arm, load and plan. Raises WorkerFailed with the reason of the arm that
        cannot, and JournalInvalid where an arm is no longer what the visits so far ran."""
        self._measured.standing += standing_probes()
        self._began = usage(())
        for done, role in enumerate(ROLES):
            self._sink(Progress("load", done, 2, self.arm(role).label()))
            self._workers.client(role)
        self._sink(Progress("load", 2, 2))
        baseline, candidate = (self._measured.opened[role] for role in ROLES)
        if baseline["plan_hash"] == candidate["plan_hash"] and not self._experiment.control:
            need = "two arms that differ in what runs are needed"
            raise ExperimentInvalid(need, got=f"one plan for both:\n{baseline['explain']}")

    def ask(self, role: Role, command: str) -> dict[str, Any]:
        """What a worker of this arm answers to a command on the workload."""
        return self.client(role).ask(command, workload=self._experiment.workload.identity())

    def client(self, role: Role) -> WorkerClient:
        """An open worker of this arm; under the design `fresh` the other arm's is then closed."""
        return self._workers.client(role)

    def run(self, pairs: int, of: int | None = None) -> None:
        """One warm-up visit per arm, then pairs of visits until `pairs` are good; nothing where they are.

        of: how many there will be in the end, to show how far the run is.
        """
        first, left = self._measured.next_pair(), pairs - len(self._measured.ok_pairs())
        if left <= 0:
            return
        self._warm_up()
        order = visit_order(first + left + MAX_FAILED_VISITS, self._coins)
        for pair, roles in enumerate(order[first:], start=first):
            done = len(self._measured.ok_pairs())
            if done == pairs:
                break
            for half, role in enumerate(roles):
                self._sink(Progress("visits", 2 * done + half, 2 * (of or pairs), self.arm(role).label()))
                self._good_visit(role, pair, noisy=self._noisy_limit(of or pairs))
        self._sink(Progress("visits", 2 * pairs, 2 * (of or pairs)))

    def _warm_up(self) -> None:
        """The first visit of a process is a cold one, and the first process finds cold files."""
        if self._warm:
            return
        for role in ROLES:
            self._sink(Progress("warm-up", ROLES.index(role), 2, self.arm(role).label()))
            self._visit(role, pair=-1, status="warmup")
        self._sink(Progress("warm-up", 2, 2))
        self._check_measured()
        self._warm = True

    def _noisy_limit(self, pairs: int) -> int:
        return max(NOISY_LEAST, round(2 * pairs * NOISY_SHARE))

    def _check_measured(self) -> None:
        """Raise ExperimentInvalid where the warm-up shows that a claimed metric cannot be judged."""
        named = [m for m in self._experiment.hypothesis.margins() if METRICS[m].source == "visit"]
        for visit in self._measured.visits:
            bad = [m for m in named if not _usable(visit, m)] if visit.status == "warmup" else []
            if bad:
                raise ExperimentInvalid(
                    f"visits that measure {', '.join(bad)} as a positive number are needed",
                    got=f"{visit.metrics.get(bad[0], 'no value')} on {self.arm(visit.role).label()}",
                    options=[name for name, value in visit.metrics.items() if value > 0],
                )

    def _good_visit(self, role: Role, pair: int, noisy: int) -> None:
        """A visit that counts: one that a probe finds noisy is made again while there are under `noisy`."""
        for left in range(NOISY_EACH, -1, -1):
            if self._visit(role, pair, "ok", noisy if left else 0) != "noisy":
                return

    def _visit(self, role: Role, pair: int, status: Literal["warmup", "ok"], noisy: int = 0) -> str:
        """Make a visit and keep it; gives its status."""
        pids, started = self._workers.pids(role), self._clock()
        before = usage((*pids, os.getpid()))
        base = VisitResult(len(self._measured.visits), pair, role, status, started - self._started)
        try:
            visited = self._workers.visit(role, self._experiment.seed * 1000 + max(pair, 0), base.index)
        except CommandFailed as error:
            self._ended(replace(base, status="failed", error=error.how, output_tail=error.tail))
            self._after_death(role)
            return "failed"
        after, seconds = usage((*visited.pids, os.getpid())), self._clock() - started
        visit = _with_sample(base, visited, visit_probes(before, after, seconds, self._began))
        if status == "ok" and not visit.quiet["quiet"] and len(self._measured.noisy()) < noisy:
            visit = replace(visit, status="noisy")
        self._ended(visit)
        return visit.status

    def _ended(self, visit: VisitResult) -> None:
        with uninterrupted():  # a visit is in both or in neither
            self._measured.visits.append(visit)
            self._keep(visit)

    def _after_death(self, role: Role) -> None:
        cold = self._workers.died(role)
        failed = self._measured.failed()
        if len(failed) > MAX_FAILED_VISITS:
            need = f"at most {MAX_FAILED_VISITS} failed visits in a run"
            raise WorkerFailed(need, got=f"{len(failed)}; the last: {failed[-1].error}")
        if cold:
            self._visit(role, pair=-1, status="warmup")

    def _opened(self, role: Role, answer: Mapping[str, Any]) -> None:
        """Take what a worker says of its arm. Raise where that is not what the visits so far ran."""
        changed = _changed(answer, self._measured.opened.setdefault(role, dict(answer)))
        if changed and role in self._known:
            need = f"the {changed[0]} that the unfinished run's {role} began with was needed"
            raise JournalInvalid(need, got="another one now", next_step="run it anew, without --resume")
        if changed:
            raise WorkerFailed("a restarted worker with the plan and artifact of the first was needed")

    def arm(self, role: Role) -> Arm:
        return getattr(self._experiment, role)


def coins(experiment: Experiment, run_id: str) -> str:
    """What seeds the order of visits: known before the first, and another for every run, so that a run that
    repeats another is evidence of its own."""
    return f"{experiment.name}/{experiment.seed}/{run_id}"


def _with_sample(base: VisitResult, visited: Visited, probes: Any) -> VisitResult:
    sample = visited.sample
    return replace(
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


def _usable(visit: VisitResult, metric: str) -> bool:
    """Whether a visit can be judged by a metric; only a ratio needs a positive number."""
    if METRICS[metric].scale == "absolute":
        return metric in visit.metrics
    return visit.metrics.get(metric, 0) > 0


def _changed(opened: Mapping[str, Any], first: Mapping[str, Any]) -> list[str]:
    """What a worker opened that it had not the first time."""
    return [name for key, name in _SAME.items() if opened[key] != first[key]]
