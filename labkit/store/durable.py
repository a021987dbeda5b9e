"""Durable: the one way in which files of a lab are written. Knows names, bytes and fsync, not what they mean.

A new file goes to a hidden temporary name first, is fsynced and only then gets its name, and the folder is
fsynced last; so after a crash or a power cut a name holds its whole old or its whole new text. While a
temporary file is written its writer holds a lock on it: what a killed process left can be told and removed.
On a file system without locks files are written all the same, and nothing there is taken for left behind.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from labkit.store.lock import take_lock, wait_for_lock

_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
# O_NONBLOCK is of no account to a file; what is none, a FIFO, would wait for its other end.
_APPEND = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
_MODE = 0o666
# macOS alone has it: fsync leaves bytes in the drive's own cache there, which a power cut empties.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_NOT_KEPT = {errno.EIO, errno.ENOSPC, errno.EDQUOT}


class NoLocks(OSError):
    """A file system without locks, where one is needed to tell who lives."""


def write_new(path: Path, text: str) -> None:
    """Write a new file whole and durably, or nothing. Raise FileExistsError where the name is taken."""
    _write(path, text.encode("utf-8"), _link_new)


def replace_text(path: Path, text: str) -> None:
    """Replace a file's text, or make the file: after a crash it holds the old text or the new one, whole."""
    _write(path, text.encode("utf-8"), Path.replace)


def move_new(path: Path, target: Path) -> None:
    """Move a file to a name that is free, durably: it is whole at one of the two names at any moment.

    A crash in between may leave it at both. Raises FileExistsError, and moves nothing, where `target` is
    taken; between two file systems it is copied first.
    """
    make_folder(target.parent)
    try:
        _link_new(path, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _write(target, path.read_bytes(), _link_new)
    sync_folder(target.parent)
    try:
        path.unlink(missing_ok=True)  # a rename, where there are no links, has taken it already
    except OSError:
        remove(target)
        raise
    sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents, so that their names survive a power cut."""
    if path.is_dir():
        return
    make_folder(path.parent)
    try:
        path.mkdir()
    except FileExistsError:
        if not path.is_dir():
            raise
    sync_folder(path.parent)


def open_append(path: Path, *, new: bool) -> int | None:
    """A handle that appends to a file and alone holds its lock; None where another process does.

    new: make the file, whose name is durable then; raises FileExistsError where it is. Not new: raises
    FileNotFoundError where it is not. The caller closes the handle, which frees the lock, as any exit does.
    Raises NoLocks, and makes no file, where the file system has no locks, and OSError for what is no file.
    """
    make_folder(path.parent)
    while True:
        handle = os.open(path, _APPEND | (os.O_CREAT | os.O_EXCL if new else 0), _MODE)
        with _closed_on_failure(handle):
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(path))
            lock = wait_for_lock(handle) if new else take_lock(handle)
            if lock == "none":
                raise _no_locks(path, new)
            if lock == "held" and os.fstat(handle).st_nlink:
                if new:
                    sync_folder(path.parent)
                return handle
        os.close(handle)
        if lock == "busy":
            return None
        # Held, and nameless: who held it before had removed it.


def cut(handle: int, size: int) -> None:
    """Cut a file to its first `size` bytes, durably."""
    os.ftruncate(handle, size)
    _sync(handle)


def append(handle: int, data: bytes) -> None:
    """Append bytes by one write, durable once this returns; a write cut short (a full disk) is undone.

    One process appends to a file at a time. Raises OSError where the bytes cannot be kept.
    """
    before = os.fstat(handle).st_size
    try:
        written = os.write(handle, data)
        if written != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        _sync(handle)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, before)
        raise


def remove(path: Path) -> None:
    """Remove a file durably; one that is gone already is no error."""
    try:
        path.unlink()
    except FileNotFoundError:
        return
    sync_folder(path.parent)


def sweep(folder: Path) -> tuple[Path, ...]:
    """Remove the temporary files in a folder whose writers are gone; say which."""
    left = sorted(folder.glob(".*.tmp")) if folder.is_dir() else []
    return tuple(path for path in left if _removed_if_left(path))


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _sync(handle)
    finally:
        os.close(handle)


def _sync(handle: int) -> None:
    """Bring a file or a folder as far as the drive; as far as its cache where no more can be asked for."""
    if _FULL_SYNC is not None:
        try:
            fcntl.fcntl(handle, _FULL_SYNC)
            return
        except OSError as error:
            if error.errno in _NOT_KEPT:  # an fsync would not tell it again
                raise
    os.fsync(handle)


def _write(path: Path, data: bytes, publish: Callable[[Path, Path], object]) -> None:
    make_folder(path.parent)
    temporary, handle = _open_temporary(path)
    try:
        _write_all(handle, data)
        _sync(handle)
        publish(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
        os.close(handle)
    sync_folder(path.parent)


def _open_temporary(path: Path) -> tuple[Path, int]:
    """A new locked file beside `path`. A sweep between its making and its lock removes it: then another."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        handle = os.open(temporary, _NEW_FILE, _MODE)
        wait_for_lock(handle)
        if os.fstat(handle).st_nlink:
            return temporary, handle
        os.close(handle)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _link_new(temporary: Path, path: Path) -> None:
    """Give the finished file its name, never over another file."""
    try:
        os.link(temporary, path, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        _rename_under_claim(temporary, path)


def _rename_under_claim(temporary: Path, path: Path) -> None:
    """The same without hard links: who holds the lock of the folder may rename where no file is.

    Without locks either, two who give the same name at the same moment are not kept apart.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        wait_for_lock(folder)
        if path.exists() or path.is_symlink():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        temporary.rename(path)
    finally:
        os.close(folder)


def _removed_if_left(path: Path) -> bool:
    with contextlib.suppress(OSError):
        # Some network file systems lock only what is open for writing.
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if take_lock(handle) == "held":
                path.unlink()
                return True
        finally:
            os.close(handle)
    return False


@contextlib.contextmanager
def _closed_on_failure(handle: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        os.close(handle)
        raise


def _no_locks(path: Path, new: bool) -> NoLocks:
    if new:
        with contextlib.suppress(OSError):
            path.unlink()
    return NoLocks(errno.ENOLCK, "the file system has no locks", str(path))
