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
    """No complete message arrived before the deadline."""


def send(fd: int, message: dict[str, Any]) -> None:
    """Write one message: 4 bytes of length, big-endian, then UTF-8 JSON. NaN is refused (ValueError)."""
    body = json.dumps(message, allow_nan=False).encode()
    view = memoryview(_LENGTH.pack(len(body)) + body)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except BrokenPipeError as error:
        raise WireClosed from error


def receive(fd: int, timeout_s: float | None = None) -> dict[str, Any]:
    """Read one message. Raise WireClosed at end of file and WireTimeout after timeout_s seconds."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    (length,) = _LENGTH.unpack(_read(fd, _LENGTH.size, deadline))
    if length > MAX_MESSAGE:
        raise WireClosed(f"a message of {length} bytes is not one of ours")
    return json.loads(_read(fd, length, deadline))


def _read(fd: int, count: int, deadline: float | None) -> bytes:
    parts: list[bytes] = []
    while count:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([fd], [], [], left)[0]:
            raise WireTimeout
        part = os.read(fd, count)
        if not part:
            raise WireClosed
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
