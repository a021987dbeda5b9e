"""File loader: experiment files loaded in a process of their own, so that none can hang or end this one.

One process loads all of them; where a file takes it down, a fresh one loads the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import labkit
from labkit.core.errors import ExperimentInvalid
from labkit.lab.experiment import Experiment
from labkit.lab.file_process import source_hash
from labkit.store.read import one_line

LIMIT_S = 20.0
# The process itself gives up a little later: who asks says what happened.
_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """An experiment file. experiment: None where it does not load, and problem then says why.

    source_hash: as in a record; empty where the file cannot be read.
    """

    path: Path
    source_hash: str
    experiment: Experiment | None
    problem: str = ""


def load_files(paths: Sequence[Path], limit_s: float = LIMIT_S) -> tuple[LoadedFile, ...]:
    """Load experiment files, in order, also those that do not load. limit_s: for each of them."""
    found: list[LoadedFile] = []
    while len(found) < len(paths):
        with _Loader(limit_s) as loader:
            for path in paths[len(found) :]:
                answer = loader.ask(path)
                found.append(_loaded(path, answer))
                if "ended" in answer:
                    break
    return tuple(found)


def _loaded(path: Path, answer: dict[str, Any]) -> LoadedFile:
    hash_, problem = answer.get("source_hash", ""), answer.get("problem", "")
    if problem:
        return LoadedFile(path, hash_, None, problem)
    try:
        return LoadedFile(path, hash_, Experiment.from_identity(answer["experiment"]))
    except ExperimentInvalid as error:
        return LoadedFile(path, hash_, None, " ".join(one_line(error).split()))


class _Loader:
    """A process that loads files, one after the other."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._left = b""
        theirs_in, self._asked = os.pipe()
        self._answers, theirs_out = os.pipe()
        try:
            self._process = _start(theirs_in, theirs_out, limit_s + _GRACE_S)
            with contextlib.suppress(BrokenPipeError):  # its first answer tells that it is gone
                self._write([*sys.path])
        finally:
            os.close(theirs_in)
            os.close(theirs_out)

    def __enter__(self) -> _Loader:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # what a file started goes with it
        self._process.wait()
        os.close(self._asked)
        os.close(self._answers)

    def ask(self, path: Path) -> dict[str, Any]:
        """The process's answer; one with `ended` where the file took it down."""
        try:
            # A file may change the folder that relative paths begin in.
            self._write(str(path.absolute()))
            found = json.loads(self._line())
            return found if isinstance(found, dict) else self._ended(path, "it answers for labkit")
        except TimeoutError:
            return self._ended(path, f"it does not load within {self._limit_s:g} s")
        except (OSError, EOFError, ValueError):
            return self._ended(path, "it ends the process that loads it")

    def _ended(self, path: Path, why: str) -> dict[str, Any]:
        problem = f"{path.name} cannot be loaded; got {why}"
        return {"problem": problem, "source_hash": source_hash(path), "ended": True}

    def _write(self, data: Any) -> None:
        os.write(self._asked, json.dumps(data).encode("ascii") + b"\n")

    def _line(self) -> bytes:
        """One line of the answers. Raises TimeoutError, and EOFError where the process is gone."""
        until = time.monotonic() + self._limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while b"\n" not in self._left:
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise TimeoutError
                part = os.read(self._answers, 1 << 16)
                if not part:
                    raise EOFError
                self._left += part
        line, _, self._left = self._left.partition(b"\n")
        return line


def _start(asked: int, answers: int, limit_s: float) -> subprocess.Popen[bytes]:
    home = str(Path(labkit.__file__).parents[1])
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-m", "labkit.lab.file_process", str(asked), str(answers), str(limit_s)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(asked, answers),
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
    )
