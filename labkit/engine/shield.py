"""Shield: keeps Ctrl-C from tearing what must be finished, such as a step or the sealing of a record."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
    held: list[int] = []

    def hold(number: int, _: FrameType | None) -> None:
        held.append(number)

    caught = [number for number in signals if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, hold) for number in caught}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held and deliver:
            signal.raise_signal(held[0])
