"""Staging: a private folder beside the models, published by one rename or removed without a trace.

Knows nothing of models. An interrupt (Ctrl-C, SIGTERM, an error) removes the folder; what a killed process
left behind is removed by the next one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from labkit.core.errors import LabkitError

PREFIX = ".staging-"
PUBLISH_ATTEMPTS = 20
_FULL = (errno.ENOSPC, errno.EDQUOT)
_RACES = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT)
_GIB, _MIB = 1 << 30, 1 << 20
_LOCK = ".lock"
_REPLACED = "replaced"
_MORE_SPACE = "free some space, or set LABKIT_HOME to a folder on a larger disk"


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that a folder, which need not exist yet, will take."""

    folder: Path
    nbytes: int


@contextmanager
def staging(home: Path) -> Iterator[Path]:
    """A fresh folder in `home` (made where absent), on the same file system, gone afterwards."""
    home.mkdir(parents=True, exist_ok=True)
    _sweep(home)
    with _terminate_as_exit():
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=home))
        try:
            with _claimed(folder):
                yield folder
        finally:
            _put_back(folder)
            shutil.rmtree(folder, ignore_errors=True)


def publish(folder: Path, target: Path) -> None:
    """Move a finished folder to `target` by rename; an older directory there goes away with the staging.

    Another process may publish the same target between two steps: then the steps are tried again. An end
    between the steps puts the older directory back, and after a kill the next staging does.
    """
    for attempt in range(PUBLISH_ATTEMPTS):
        try:
            if target.exists() or target.is_symlink():
                target.rename(folder.with_name(f"{_REPLACED}.{attempt}.{target.name}"))
            folder.rename(target)
        except OSError as error:
            if error.errno not in _RACES or attempt == PUBLISH_ATTEMPTS - 1:
                raise
        else:
            return


def require_space(folder: Path, needed_bytes: int, what: str, next_step: str = _MORE_SPACE) -> None:
    """Raise LabkitError where the file system of `folder` has less free than needed."""
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise LabkitError(
            f"{_amount(needed_bytes)} of free disk space were needed for {what}",
            got=f"{_amount(free)} free in {folder.parent if folder.name.startswith(PREFIX) else folder}",
            next_step=next_step,
        )


def require_rooms(rooms: Sequence[Room], what: str, next_step: str = _MORE_SPACE) -> None:
    """Raise LabkitError where a file system has less free than all its rooms need together."""
    needed: dict[int, Room] = {}
    for room in rooms:
        folder = next(f for f in (room.folder, *room.folder.absolute().parents) if f.exists())
        device = folder.stat().st_dev
        before = needed.get(device, Room(folder, 0))
        needed[device] = Room(before.folder, before.nbytes + room.nbytes)
    for room in needed.values():
        require_space(room.folder, room.nbytes, what, next_step)


def _amount(nbytes: int) -> str:
    return f"{nbytes / _GIB:.2f} GiB" if nbytes >= _GIB // 10 else f"{nbytes / _MIB:.1f} MiB"


@contextmanager
def full_disk(folder: Path, what: str) -> Iterator[None]:
    """A disk that others fill meanwhile is told as one that was too full before."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise LabkitError(
            f"more free disk space was needed for {what}",
            got=f"{error.strerror} in {folder.parent}",
            next_step=_MORE_SPACE,
        ) from error


@contextmanager
def _terminate_as_exit() -> Iterator[None]:
    """SIGTERM raises SystemExit, so that clean-up runs; another handler, or another thread, is left alone."""
    own = threading.current_thread() is threading.main_thread()
    if not own or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit_on_signal(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """Hold a lock in the folder, which the system frees however this process ends."""
    # Locked under another name first, so that nobody ever finds the lock free.
    with (folder / f"{_LOCK}-new").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Path(lock.name).rename(folder / _LOCK)
        yield


def _sweep(home: Path) -> None:
    """Remove the folders of processes that are no longer there, less a model that was to be replaced."""
    for folder in home.glob(f"{PREFIX}*"):
        if folder.is_dir() and not _owned(folder):
            _put_back(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _put_back(folder: Path) -> None:
    """Put back what `publish` has moved away from a target without a new one in its place."""
    for older in sorted(folder.glob(f"{_REPLACED}.*")):
        target = folder.parent / older.name.split(".", 2)[2]
        if not (target.exists() or target.is_symlink()):
            with suppress(OSError):  # another has published meanwhile
                older.rename(target)


def _owned(folder: Path) -> bool:
    """Whether the process that made a folder lives: it holds the lock, or is about to make it."""
    try:
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        owner = folder.name.removeprefix(PREFIX).split("-")[0]
        return not owner.isdigit() or _alive(int(owner))
    except OSError:
        return True
    return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
