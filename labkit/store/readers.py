"""Readers: many record files read by several processes at once, as batches in no order.

Processes of their own rather than multiprocessing, which would run the caller's script again in each.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import labkit
from labkit.store.batch import Batch, read_batch
from labkit.store.reader_process import receive_batch

CHUNK = 250
# Below it the start of the processes costs more than they save.
ALONE = 2000
MOST = 8


def read_batches(root: Path, paths: Sequence[str], processes: int | None = None) -> Iterator[Batch]:
    """The files at `paths` below the lab root as batches of at most CHUNK files.

    processes: how many read; None takes this process alone for a few files, else one a usable core. A
    process that dies costs time only: its chunk is read here.
    """
    chunks = [paths[start : start + CHUNK] for start in range(0, len(paths), CHUNK)]
    count = (_usable_cores() if len(paths) > ALONE else 0) if processes is None else processes
    if count == 0:
        yield from (read_batch(root, chunk) for chunk in chunks)
        return
    with contextlib.ExitStack() as stack:
        pool = _Pool(root, chunks)
        for _ in range(min(count, len(chunks))):
            stack.callback(_end, pool.start())
        yield from pool.batches()


class _Pool:
    """Chunks to read, and the threads that each hand them to a process and put its answers in one queue."""

    def __init__(self, root: Path, chunks: Sequence[Sequence[str]]) -> None:
        self._root, self._chunks = root, chunks
        self._todo: queue.SimpleQueue[Sequence[str]] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Batch | Sequence[str]] = queue.SimpleQueue()
        for chunk in chunks:
            self._todo.put(chunk)

    def start(self) -> subprocess.Popen[bytes]:
        process = _start(self._root)
        threading.Thread(target=self._serve, args=(process,), daemon=True).start()
        return process

    def batches(self) -> Iterator[Batch]:
        for _ in self._chunks:
            done = self._done.get()
            yield done if isinstance(done, dict) else read_batch(self._root, done)

    def _serve(self, process: subprocess.Popen[bytes]) -> None:
        """Hand out chunks until there is none; one without an answer goes back as it is, to be read here."""
        while True:
            try:
                chunk = self._todo.get_nowait()
            except queue.Empty:
                return
            self._done.put(_ask(process, chunk) or chunk)


def _start(root: Path) -> subprocess.Popen[bytes]:
    home = str(Path(labkit.__file__).parents[1])
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-m", "labkit.store.reader_process", str(root.absolute())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )


def _ask(process: subprocess.Popen[bytes], chunk: Sequence[str]) -> Batch | None:
    """The process's answer, or None where it is gone or answers with what is none."""
    stdin, stdout = cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout)
    try:
        stdin.write(json.dumps(chunk).encode() + b"\n")
        stdin.flush()
        return receive_batch(stdout)
    except Exception:  # whatever it answered, its chunk can still be read here
        return None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        # What was not written to a dead process cannot be flushed.
        with contextlib.suppress(OSError):
            assert pipe
            pipe.close()


def _usable_cores() -> int:
    available = getattr(os, "sched_getaffinity", None)
    return min(MOST, len(available(0)) if available else os.cpu_count() or 1)
