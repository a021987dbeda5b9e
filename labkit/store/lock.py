"""Lock: an advisory lock on an open file or folder, which any exit of its process frees.

Some network file systems have no locks. That is an answer here and no error: what it costs is the caller's
to know.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable
from typing import Literal

# busy: another process holds it. none: the file system has no locks.
Lock = Literal["held", "busy", "none"]
POLL_S = 0.05


def take_lock(handle: int) -> Lock:
    """Lock an open file or folder for this handle alone, or say at once why not."""
    return _lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def wait_for_lock(handle: int) -> Lock:
    """The same, however long another process holds it: never `busy`."""
    return _lock(handle, fcntl.LOCK_EX)


def poll_for_lock(handle: int, wait_s: float, clock: Callable[[], float] = time.monotonic) -> Lock:
    """The same, where another process may hold it for `wait_s` seconds: `busy` once they have passed."""
    started = clock()
    while (lock := take_lock(handle)) == "busy" and clock() - started < wait_s:
        time.sleep(POLL_S)
    return lock


def _lock(handle: int, how: int) -> Lock:
    try:
        fcntl.flock(handle, how)
    except (BlockingIOError, PermissionError):  # EACCES is how some systems say that it is held
        return "busy"
    except OSError:
        return "none"
    return "held"
