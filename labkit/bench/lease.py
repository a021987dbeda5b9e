"""The device lease: one measurement at a time on a machine. A file lock, freed by the system on any exit."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from labkit.core.errors import DeviceBusy
from labkit.core.events import Note, Sink, silent

POLL_S = 0.2


def lease_path() -> Path:
    """The lock file in the temporary folder: one for every checkout, and on Linux for every user."""
    return Path(tempfile.gettempdir()) / "labkit-device.lock"


@contextlib.contextmanager
def device_lease(
    purpose: str, path: Path, *, wait_s: float | None = None, sink: Sink = silent
) -> Iterator[None]:
    """Hold the device for `purpose`. wait_s None waits for ever, with a note of who holds it.

    Raises DeviceBusy, naming the holder, when wait_s seconds have passed. On a file system without locks
    nobody is waited for, and a note says so.
    """
    descriptor = _open(path)
    try:
        _acquire(descriptor, path, wait_s, sink)
    except BaseException:
        os.close(descriptor)
        raise
    try:
        # Only a courtesy to who waits: another user's leftover may stand in the way of it.
        with contextlib.suppress(OSError):
            _holder_file(path).write_text(json.dumps({"pid": os.getpid(), "purpose": purpose}))
        yield
    finally:
        with contextlib.suppress(OSError):
            _holder_file(path).unlink(missing_ok=True)
        os.close(descriptor)  # which frees the lock, as any exit of this process does


def holder(path: Path) -> str:
    """Who holds the lease, as a phrase."""
    try:
        data = json.loads(_holder_file(path).read_text())
        return f"{data['purpose']} (process {data['pid']})"
    except (OSError, ValueError, KeyError):
        return "another measurement"


def _open(path: Path) -> int:
    """The lock file, whoever made it: an advisory lock needs no more than to read it."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        path.chmod(0o644)  # whatever the umask says
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _acquire(descriptor: int, path: Path, wait_s: float | None, sink: Sink) -> None:
    started, told = time.monotonic(), False
    while True:
        if _locked(descriptor, path, sink):
            return
        if wait_s is not None and time.monotonic() - started >= wait_s:
            need = "the device lease is needed for a measurement"
            raise DeviceBusy(need, got=f"held by {holder(path)}", next_step="wait for it to end")
        if not told:
            sink(Note(f"waiting for the device: held by {holder(path)}"))
            told = True
        time.sleep(POLL_S)


def _locked(descriptor: int, path: Path, sink: Sink) -> bool:
    """Whether nobody else is to be waited for: the lock is held, or there are none to hold."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        reason = error.strerror or error
        sink(Note(f"no lock can be had on {path} ({reason}): measure nothing else on this machine meanwhile"))
    return True


def _holder_file(path: Path) -> Path:
    return path.with_suffix(".holder.json")
