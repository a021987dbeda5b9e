"""Length-prefixed JSON over pipes: the one way a bench and its workers talk. Knows no commands."""

from __future__ import annotations

import json
import os
import select
import struct
import time
from typing import Any

_LENGTH = struct.Struct(">I")
MAX_MESSAGE = 64 * 2**20


class WireClosed(Exception):
    """The other side is gone: end of file in the middle of, or instead of, a message."""


class WireTimeout(Exception):
    """A message was not complete before the deadline, in either direction."""


def send(fd: int, message: dict[str, Any], timeout_s: float | None = None) -> None:
    """Write one message: 4 bytes of length, big-endian, then UTF-8 JSON.

    Raise ValueError for NaN and for more than MAX_MESSAGE bytes, WireClosed where nobody can read it, and
    WireTimeout where it is not all taken after timeout_s seconds; the wire is of no use after that.
    """
    body = json.dumps(message, allow_nan=False).encode()
    if len(body) > MAX_MESSAGE:
        raise ValueError(f"a message of {len(body)} bytes is over {MAX_MESSAGE}")
    deadline = _deadline(timeout_s)
    view = memoryview(_LENGTH.pack(len(body)) + body)
    try:
        while view:
            _wait(fd, select.POLLOUT, deadline)
            # A pipe that is ready takes this much without blocking, and no more for certain.
            view = view[os.write(fd, view[: select.PIPE_BUF]) :]
    except BrokenPipeError as error:
        raise WireClosed from error


def receive(fd: int, timeout_s: float | None = None) -> dict[str, Any]:
    """Read one message. Raise WireClosed at end of file and WireTimeout after timeout_s seconds."""
    deadline = _deadline(timeout_s)
    (length,) = _LENGTH.unpack(_read(fd, _LENGTH.size, deadline))
    if length > MAX_MESSAGE:
        raise WireClosed(f"a message of {length} bytes is not one of ours")
    return json.loads(_read(fd, length, deadline))


def _read(fd: int, count: int, deadline: float | None) -> bytes:
    parts: list[bytes] = []
    while count:
        _wait(fd, select.POLLIN, deadline)
        part = os.read(fd, count)
        if not part:
            raise WireClosed
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


def _wait(fd: int, event: int, deadline: float | None) -> None:
    poll = select.poll()
    poll.register(fd, event)
    left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
    if not poll.poll(left):
        raise WireTimeout
