"""Workers: the processes that the two arms of a run live in, by design. Knows no pairs and no records.

`process-pair` keeps one process per arm, both open at once. `fresh` starts a new one for each visit and holds
one at a time: for cold numbers, and for models of which two do not fit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from labkit.bench.client import WorkerClient
from labkit.bench.pairs import Role
from labkit.bench.visit import VisitSample
from labkit.core.arm import Arm
from labkit.lab.experiment import Experiment
from labkit.lab.problems import Design

# Called with what a worker says of its arm each time that one is opened.
Opened = Callable[[Role, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Visited:
    """What a visit gave. pids: the processes that made it and still live."""

    sample: VisitSample
    pids: tuple[int, ...]


class Workers(Protocol):
    """Where the arms of a run live. Raises WorkerFailed where a process cannot be had."""

    def client(self, role: Role) -> WorkerClient:
        """An open worker of this arm, for whatever is no visit."""
        ...

    def pids(self, role: Role) -> tuple[int, ...]:
        """The processes that live before a visit of this arm and take part in it."""
        ...

    def visit(self, role: Role, seed: int, index: int) -> Visited:
        """Run the workload once. Raises CommandFailed where that gives no result."""
        ...

    def died(self, role: Role) -> bool:
        """After a visit that failed: end what is left of it. Whether a new worker must warm up first."""
        ...

    def close(self) -> None:
        """End every process."""
        ...


class PairWorkers:
    """One process per arm for the whole run, started when it is first asked for."""

    def __init__(self, start: Callable[[Role], WorkerClient], experiment: Experiment) -> None:
        self._start, self._workload = start, experiment.workload
        self._open: dict[Role, WorkerClient] = {}

    def client(self, role: Role) -> WorkerClient:
        if role not in self._open:
            self._open[role] = self._start(role)
        return self._open[role]

    def pids(self, role: Role) -> tuple[int, ...]:
        return (self.client(role).pid,)

    def visit(self, role: Role, seed: int, index: int) -> Visited:
        client = self.client(role)
        return Visited(client.visit(self._workload, seed, index), (client.pid,))

    def died(self, role: Role) -> bool:
        self._open.pop(role).close()
        return True

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


class FreshWorkers:
    """A process for each visit, which runs the workload twice: the first time cold, the second time warm.

    The metrics of a visit are those of the second run, and four of the first: load_s, cold_start_s,
    compile_s and, for comparison, warm_start_s. Files may lie in the system's page cache, as warm-up visits
    leave them. What is no visit is asked of one process at a time.
    """

    def __init__(self, start: Callable[[Role], WorkerClient], experiment: Experiment) -> None:
        self._start, self._workload = start, experiment.workload
        self._open: tuple[Role, WorkerClient] | None = None

    def client(self, role: Role) -> WorkerClient:
        if self._open is None or self._open[0] != role:
            self.close()
            self._open = role, self._start(role)
        return self._open[1]

    def pids(self, role: Role) -> tuple[int, ...]:
        self.close()
        return ()

    def visit(self, role: Role, seed: int, index: int) -> Visited:
        self.close()
        began = time.monotonic()
        client = self.client(role)
        load_s = time.monotonic() - began
        cold = client.visit(self._workload, seed, index)
        warm = client.visit(self._workload, seed, index)
        starts = _starts(load_s, cold, warm)
        return Visited(replace(warm, metrics={**warm.metrics, **starts}), (client.pid,))

    def died(self, role: Role) -> bool:
        self.close()
        return False

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None


DESIGNS: Mapping[Design, type[PairWorkers] | type[FreshWorkers]] = {
    "process-pair": PairWorkers,
    "fresh": FreshWorkers,
}


def workers_of(
    experiment: Experiment, environ: Mapping[str, str], timeout_s: float, opened: Opened
) -> Workers:
    """The workers that an experiment's design asks for; nothing is started yet."""

    def start(role: Role) -> WorkerClient:
        arm: Arm = getattr(experiment, role)
        client = WorkerClient(arm, environ, timeout_s)
        try:
            opened(role, client.open(experiment.workload))
        except BaseException:
            client.close()
            raise
        return client

    return DESIGNS[experiment.design](start, experiment)


def _starts(load_s: float, cold: VisitSample, warm: VisitSample) -> dict[str, float]:
    """From the start of the process and from the requests to their first tokens; absent without any."""
    found = {"load_s": load_s}
    if cold.start_s is not None and warm.start_s is not None:
        found |= {"cold_start_s": load_s + cold.start_s, "warm_start_s": warm.start_s}
        # Clocks tell no less than a nanosecond: what is below it is the rounding of the difference.
        found["compile_s"] = round(cold.start_s - warm.start_s, 9)
    return found
