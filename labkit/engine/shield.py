"""Shield: keeps Ctrl-C from tearing what must be finished, such as a step or the sealing of a record."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted(*, signals: tuple[int, ...] = STOPS, deliver: bool = True) -> Iterator[None]:
    """Hold back `signals` within the block; deliver the first of them that came after it.

    deliver: False forgets them, for work that an interruption is being answered with. Signals reach the main
    thread alone, so in another thread there is nothing to hold back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    now = {number: signal.getsignal(number) for number in signals}
    # What a block around this one holds back already is its to deliver.
    left = [signal.SIG_IGN, None, *(handler for handler in now.values() if deliver and _holds(handler))]
    caught = [number for number, handler in now.items() if handler not in left]
    hold = _Hold()
    for number in caught:
        signal.signal(number, hold)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, now[number])
        if hold.held and deliver:
            signal.raise_signal(hold.held[0])


class _Hold:
    """A handler that remembers what came."""

    def __init__(self) -> None:
        self.held: list[int] = []

    def __call__(self, number: int, _: FrameType | None) -> None:
        self.held.append(number)


def _holds(handler: Any) -> bool:
    return isinstance(handler, _Hold)
