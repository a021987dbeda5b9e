"""The command line under test: in this process for messages, as a process of its own for signals."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import psutil

from labkit.cli.main import main

EXPERIMENT = """
from labkit import Arm, Experiment, Hypothesis, Sampling, ScoreText, Workload
experiment = Experiment(
    "null-ab", Hypothesis("less memory", improves={"kv_bytes": 0.4}, holds={"decode_tps": 0.03}),
    Arm("null:kv_bytes_per_token=100"), Arm("null:kv_bytes_per_token=40,slowdown=1.1"),
    Workload(64, 16), expires="2099-01-01", score=None, pairs=2)
"""
# 16 tokens at 40 a second of real time: a visit lasts 0.4 s.
SLEEPY = EXPERIMENT.replace("null:", "null:realtime=true,decode_tps=40,prefill_tps=10000,")
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    def message(self) -> str:
        """What stderr says from `labkit: ` on; asserts that this is one message and no traceback."""
        assert "Traceback" not in self.err + self.out, self.err + self.out
        assert self.err.count("labkit: ") == 1, self.err
        return self.err[self.err.index("labkit: ") :]


def labkit(*arguments: str | Path) -> Ended:
    """Run a command in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code: object = 0
    arguments_of = patch.object(sys, "argv", ["labkit", *map(str, arguments)])
    with kept_handlers(), arguments_of, redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int)
    return Ended(code, *(s.buffer.getvalue().decode() for s in (out, err)))


@contextmanager
def kept_handlers() -> Iterator[None]:
    """Give the handlers of this process back when the block ends."""
    before = {number: signal.getsignal(number) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Running:
    """A command as a process, with its stderr read up to what a test waits for."""

    def __init__(self, folder: Path, *arguments: str | Path, **environ: str) -> None:
        """folder: for the lease and scratch files, so that no other measurement on the machine is met."""
        self._out, self._err = folder / f"out-{time.monotonic_ns()}", folder / f"err-{time.monotonic_ns()}"
        environ = {**os.environ, "TMPDIR": str(folder), "COLUMNS": "80", **environ}
        # A test runner started in the background ignores SIGINT, and a child would inherit that.
        with kept_handlers(), self._out.open("w") as out, self._err.open("w") as err:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            command = [sys.executable, "-m", "labkit.cli.main", *map(str, arguments)]
            self.process = subprocess.Popen(command, stdout=out, stderr=err, env=environ)

    def wait_for(self, text: str, seconds: float = 30.0) -> None:
        """Wait until stderr holds a text."""
        until(lambda: text in self._err.read_text() or self.process.poll() is not None, seconds)
        assert text in self._err.read_text(), self._err.read_text()

    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def stop(self, number: int) -> Ended:
        """Send a signal to the command alone and wait for its end and that of its children."""
        children = self.workers()
        self.process.send_signal(number)
        ended = self.end()
        assert not psutil.wait_procs(children, timeout=5)[1]
        return ended

    def end(self, seconds: float = 60.0) -> Ended:
        code = self.process.wait(timeout=seconds)
        return Ended(code, self._out.read_text(), self._err.read_text())


def until(holds: object, seconds: float) -> None:
    """Poll until a condition holds, or the time is up."""
    assert callable(holds)
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)


def make_lab(folder: Path, text: str = EXPERIMENT, *names: str) -> Path:
    """A lab with one experiment file per name (`mine.py` where none is given)."""
    (folder / "experiments").mkdir(parents=True)
    for name in names or ("mine.py",):
        (folder / "experiments" / name).write_text(text, encoding="utf-8")
    return folder


def files(folder: Path) -> set[str]:
    """Every file below a folder, hidden ones too, without Python's caches."""
    found = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir())
    return {name for name in found if "__pycache__" not in name}
