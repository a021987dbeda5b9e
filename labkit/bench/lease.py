"""The device lease: one measurement at a time on a machine. A file lock, freed by the system on any exit."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from labkit.core.errors import DeviceBusy
from labkit.core.events import Note, Sink, silent


def lease_path() -> Path:
    """The lock file in the temporary folder: one for every checkout, and on Linux for every user."""
    return Path(tempfile.gettempdir()) / "labkit-device.lock"


@contextlib.contextmanager
def device_lease(
    purpose: str, path: Path, *, wait_s: float | None = None, sink: Sink = silent
) -> Iterator[None]:
    """Hold the device for `purpose`. wait_s None waits for ever, with a note of who holds it.

    Raises DeviceBusy, naming the holder, when wait_s seconds have passed.
    """
    lock = FileLock(path, mode=0o666)
    _acquire(lock, path, wait_s, sink)
    try:
        # Only a courtesy to who waits: another user's leftover may stand in the way of it.
        with contextlib.suppress(OSError):
            _holder_file(path).write_text(json.dumps({"pid": os.getpid(), "purpose": purpose}))
        yield
    finally:
        with contextlib.suppress(OSError):
            _holder_file(path).unlink(missing_ok=True)
        lock.release()


def holder(path: Path) -> str:
    """Who holds the lease, as a phrase."""
    try:
        data = json.loads(_holder_file(path).read_text())
        return f"{data['purpose']} (process {data['pid']})"
    except (OSError, ValueError, KeyError):
        return "another measurement"


def _acquire(lock: FileLock, path: Path, wait_s: float | None, sink: Sink) -> None:
    started, told = time.monotonic(), False
    while True:
        try:
            lock.acquire(timeout=0.2)
            return
        except Timeout:
            if wait_s is not None and time.monotonic() - started >= wait_s:
                need = "the device lease is needed for a measurement"
                raise DeviceBusy(
                    need, got=f"held by {holder(path)}", next_step="wait for it to end"
                ) from None
        if not told:
            sink(Note(f"waiting for the device: held by {holder(path)}"))
            told = True


def _holder_file(path: Path) -> Path:
    return path.with_suffix(".holder.json")
