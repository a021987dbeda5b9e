"""The bench's side of a worker: starts it, asks, and turns a death or a hang into one error."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from labkit.bench.visit import VisitSample
from labkit.bench.wire import WireClosed, WireTimeout, receive, send
from labkit.core.arm import Arm, Workload
from labkit.core.errors import LabkitError, WorkerFailed
from labkit.schedule.of_workload import arrivals_of

TAIL_BYTES = 4000
TIMEOUT_S = 900.0
VISIT_TIMEOUT_S = 120.0
VISIT_FACTOR = 20
# Requests that are taken to be answered together.
ROWS = 8


class CommandFailed(WorkerFailed):
    """A worker gave no result: it is gone, did not answer in time, or lives and could not do the command.

    how: what happened, without the output. tail: the last of what the worker printed.
    """

    def __init__(self, need: str, *, got: str, tail: str) -> None:
        last = " | ".join(tail.strip().splitlines()[-3:])
        super().__init__(need, got=f"{got}; its last output: {last}" if last else got)
        self.how = got
        self.tail = tail


class WorkerClient:
    """One worker process of one arm. Not thread-safe; `close()` is idempotent.

    The worker is in a process group of its own, so that Ctrl-C reaches the bench alone; it ends when its
    lifeline closes, however the bench ends and whatever the worker is doing.

    timeout_s: the bound of every command, long enough to load a large model, and of the first visit.
    visit_timeout_s: the least bound of a later visit, which has VISIT_FACTOR times the longest so far.
    """

    def __init__(
        self,
        arm: Arm,
        environ: Mapping[str, str],
        timeout_s: float = TIMEOUT_S,
        visit_timeout_s: float = VISIT_TIMEOUT_S,
    ) -> None:
        self._arm, self._timeout_s, self._visit_timeout_s = arm, timeout_s, visit_timeout_s
        self._longest_visit_s: float | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the worker
        their_commands, self._commands = os.pipe()
        self._answers, their_answers = os.pipe()
        their_lifeline, self._lifeline = os.pipe()
        theirs = (their_commands, their_answers, their_lifeline)
        env = {**environ, "PYTHONUNBUFFERED": "1"} | ({"LABKIT_BLAS": arm.blas} if arm.blas else {})
        if any(own.in_file for own in arm.classes):  # it is to be found there as it is here
            env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "labkit.bench.worker", *map(str, theirs)],
            pass_fds=theirs,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=env,
        )
        for fd in theirs:
            os.close(fd)

    @property
    def pid(self) -> int:
        return self._process.pid

    def open(self, workload: Workload) -> dict[str, Any]:
        """Load the arm's model and plan the workload. Raises WorkerFailed with the worker's own reason."""
        return self.ask("open", workload=workload.identity())

    def visit(self, workload: Workload, seed: int, index: int = 0) -> VisitSample:
        """Run the workload once, as visit `index` of the run. Raises CommandFailed without a result."""
        message = {"workload": workload.identity(), "seed": seed, "index": index}
        started = time.monotonic()
        answer = self._exchange("visit", message, self._visit_limit_s(workload))
        self._longest_visit_s = max(self._longest_visit_s or 0.0, time.monotonic() - started)
        return VisitSample.from_json(answer)

    def ask(self, do: str, **message: Any) -> dict[str, Any]:
        """Send one command and wait for its answer, timeout_s at most."""
        return self._exchange(do, message, self._timeout_s)

    def tail(self) -> str:
        """The last few kilobytes that the worker printed."""
        if self._output.closed:
            return ""
        end = os.fstat(self._output.fileno()).st_size
        data = os.pread(self._output.fileno(), TAIL_BYTES, max(0, end - TAIL_BYTES))
        return data.decode(errors="replace")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Close the pipes and end the worker."""
        if self._output.closed:
            return
        for fd in (self._commands, self._answers, self._lifeline):
            os.close(fd)
        try:
            self._process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            self.kill()
        self._output.close()

    def _visit_limit_s(self, workload: Workload) -> float:
        """Of a workload of several requests the first visit has the bound of one for every eight, from when
        the last of them came."""
        if self._longest_visit_s is None:
            arrivals = arrivals_of(workload)
            return self._timeout_s * math.ceil(len(arrivals) / ROWS) + arrivals[-1].at_s
        return max(self._visit_timeout_s, VISIT_FACTOR * self._longest_visit_s)

    def _exchange(self, do: str, message: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """One command and its answer within limit_s seconds; a worker that takes longer is killed."""
        deadline = time.monotonic() + limit_s
        try:
            send(self._commands, {"do": do, "arm": self._arm.identity(), **message}, limit_s)
            answer = receive(self._answers, deadline - time.monotonic())
        except WireClosed:
            raise self._died(f"it ended with {self._ending()}") from None
        except WireTimeout:
            self.kill()
            raise self._died(f"no answer to {do!r} within {limit_s:.0f} s") from None
        if "error" in answer:
            raise _error(answer, self.tail())
        return answer

    def _died(self, how: str) -> CommandFailed:
        return CommandFailed(f"a worker for {self._arm.label()} was needed", got=how, tail=self.tail())

    def _ending(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "its pipe closed"
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _error(answer: dict[str, Any], tail: str) -> LabkitError:
    if answer.get("kind") == "refused":
        return WorkerFailed(answer["error"])
    return CommandFailed("a command that the worker can carry out", got=answer["error"], tail=tail)
