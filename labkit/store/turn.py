"""Turn: one process at a time makes the index of a lab. Readers take no turn."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

WAIT_S = 120.0
POLL_S = 0.05


@contextlib.contextmanager
def turn(folder: Path, wait_s: float = WAIT_S) -> Iterator[bool]:
    """Hold the lock on a folder, which leaves no file and ends with its process; yields whether it is held.

    It is not held where another process keeps it for longer than `wait_s` seconds, or on a file system
    without locks: then two may build at once, of which the later one counts.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield _acquired(handle, time.monotonic() + wait_s)
    finally:
        os.close(handle)


def _acquired(handle: int, deadline_s: float) -> bool:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(POLL_S)
        except OSError:
            return False
