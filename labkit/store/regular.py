"""Regular: the bytes of a file that may turn out to be none. Waits for nobody and follows no meaning."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_bytes(path: Path | str) -> bytes:
    """The bytes of a regular file, or of the one that a link leads to.

    Raises OSError, "not a regular file" for a folder, FIFO, socket or device, without waiting for its writer.
    """
    # A FIFO opened to be read waits for its writer, unless it is opened so.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    except BaseException:
        os.close(handle)
        raise
    with os.fdopen(handle, "rb") as file:
        return file.read()
