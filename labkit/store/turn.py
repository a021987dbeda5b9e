"""Turn: one process at a time makes the index of a lab. Readers take no turn."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from labkit.store.lock import poll_for_lock

WAIT_S = 120.0


@contextlib.contextmanager
def turn(folder: Path, wait_s: float = WAIT_S) -> Iterator[bool]:
    """Hold the lock on a folder, which leaves no file and ends with its process; yields whether it is held.

    It is not held where another process keeps it for longer than `wait_s` seconds, or on a file system
    without locks: then two may build at once, of which the later one counts.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield poll_for_lock(handle, wait_s) == "held"
    finally:
        os.close(handle)
