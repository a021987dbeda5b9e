"""The bench's side of real workers that hang, die, fail or are left in the middle of a command."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import psutil
import pytest

from labkit.bench.client import CommandFailed, WorkerClient
from labkit.core.arm import Arm, Workload
from labkit.core.errors import WorkerFailed

WORKLOAD = Workload(16, 4)
# Every decoded token takes ten seconds.
ASLEEP = "null:realtime=true,decode_tps=0.1,prefill_tps=10000"


@contextmanager
def worker(
    model: str = "null", environ: dict[str, str] | None = None, timeout_s: float = 60.0
) -> Iterator[WorkerClient]:
    client = WorkerClient(Arm(model), {**os.environ, **(environ or {})}, timeout_s, visit_timeout_s=1.0)
    try:
        yield client
    finally:
        client.close()


def startup(folder: Path, code: str) -> dict[str, str]:
    """The environment of a worker that runs `code` when its interpreter starts."""
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])}


def test_a_visit_of_a_stopped_worker_fails_in_time_and_the_worker_is_killed() -> None:
    with worker() as client:
        client.open(WORKLOAD)
        client.visit(WORKLOAD, seed=0)
        os.kill(client.pid, signal.SIGSTOP)
        # One second, or on a crowded machine 20 times what the first visit took; never the 60 s of a command.
        with pytest.raises(CommandFailed, match=r"no answer to 'visit' within \d+ s") as failed:
            client.visit(WORKLOAD, seed=1, index=1)
        assert failed.value.how.startswith("no answer to 'visit' within")
        assert "60 s" not in failed.value.how
        assert not psutil.pid_exists(client.pid)
        with pytest.raises(CommandFailed, match="it ended with signal SIGKILL"):
            client.visit(WORKLOAD, seed=2, index=2)


def test_a_command_larger_than_the_pipe_to_a_stopped_worker_fails_in_time(tmp_path: Path) -> None:
    # It stops itself before it reads anything, so that the short bound is all there is to wait for.
    environ = startup(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)")
    with worker(environ=environ, timeout_s=1.0) as client:
        with pytest.raises(CommandFailed, match="no answer to 'encode' within 1 s"):
            client.ask("encode", text="x" * 2**20)
        assert not psutil.pid_exists(client.pid)


def test_a_worker_that_ends_is_named_with_its_exit_code_and_last_words(tmp_path: Path) -> None:
    code = "import os; print('no room', flush=True); os._exit(3)"
    failing = pytest.raises(CommandFailed, match="it ended with exit code 3; its last output: no room")
    with worker(environ=startup(tmp_path, code)) as client, failing as failed:
        client.open(WORKLOAD)
    assert (failed.value.how, failed.value.tail.strip()) == ("it ended with exit code 3", "no room")


def test_a_command_that_fails_leaves_the_worker_alive() -> None:
    with worker() as client:
        with pytest.raises(CommandFailed, match="KeyError") as failed:
            client.ask("encode")
        assert "Traceback" in failed.value.tail
        assert client.ask("encode", text="ab") == {"tokens": [97, 98]}


def test_a_refusal_is_the_workers_own_words_and_no_failure_of_the_command() -> None:
    with worker() as client, pytest.raises(WorkerFailed, match="context of 4096 tokens") as refused:
        client.open(Workload(4090, 16))
    assert not isinstance(refused.value, CommandFailed)


def test_close_in_the_middle_of_a_command_leaves_no_process() -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        with worker(ASLEEP) as client:
            client.open(WORKLOAD)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            started = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                client.visit(WORKLOAD, seed=0)
            client.close()
            client.close()
            assert not psutil.pid_exists(client.pid)
            # The visit would have taken 40 seconds.
            assert time.monotonic() - started < 30
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
