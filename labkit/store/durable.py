"""Durable: the one way in which files of a lab are written. Knows names, bytes and fsync, not what they mean.

A new file goes to a hidden temporary name first, is fsynced and only then gets its name, and the folder is
fsynced last; so after a crash or a power cut a name holds its whole old or its whole new text. While a
temporary file is written its writer holds a lock on it: what a killed process left can be told and removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
from collections.abc import Callable
from pathlib import Path

_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
_MODE = 0o666


def write_new(path: Path, text: str) -> None:
    """Write a new file whole and durably, or nothing. Raise FileExistsError where the name is taken."""
    _write(path, text, _link_new)


def replace_text(path: Path, text: str) -> None:
    """Replace a file's text, or make the file: after a crash it holds the old text or the new one, whole."""
    _write(path, text, Path.replace)


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
    """
    make_folder(path.parent)
    while True:
        handle = os.open(path, _APPEND | (os.O_CREAT | os.O_EXCL if new else 0), _MODE)
        if not _locked(handle, wait=new):
            os.close(handle)
            return None
        if os.fstat(handle).st_nlink:
            break
        os.close(handle)  # its holder removed it before it was locked here
    if new:
        sync_folder(path.parent)
    return handle


def cut(handle: int, size: int) -> None:
    """Cut a file to its first `size` bytes, durably."""
    os.ftruncate(handle, size)
    os.fsync(handle)


def append(handle: int, data: bytes) -> None:
    """Append bytes by one write, durable once this returns; a write cut short (a full disk) is undone.

    One process appends to a file at a time. Raises OSError where the bytes cannot be kept.
    """
    before = os.fstat(handle).st_size
    try:
        written = os.write(handle, data)
        if written != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(handle)
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
        os.fsync(handle)
    finally:
        os.close(handle)


def _write(path: Path, text: str, publish: Callable[[Path, Path], object]) -> None:
    make_folder(path.parent)
    temporary, handle = _open_temporary(path)
    try:
        _write_all(handle, text.encode("utf-8"))
        os.fsync(handle)
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
        fcntl.flock(handle, fcntl.LOCK_EX)
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
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        _rename_under_claim(temporary, path)


def _rename_under_claim(temporary: Path, path: Path) -> None:
    """The same without hard links: who holds the lock of the folder may rename where no file is."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if path.exists() or path.is_symlink():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        temporary.rename(path)
    finally:
        os.close(folder)


def _removed_if_left(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if _locked(handle):
            path.unlink()
            return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


def _locked(handle: int, *, wait: bool = False) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True
