"""News: lets whoever waits for a session look again. Knows sessions by what they say of themselves."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence

from labkit.engine.batching.session import BatchedSession


class News:
    """Readers on other threads than the device's, and their calls.

    is_there: whether a session has something to read, or nothing more to wait for. It is called under the
    lock and must not wait.
    """

    def __init__(self, is_there: Callable[[BatchedSession], bool]) -> None:
        self._is_there = is_there
        self._changed = threading.Condition()
        self._watchers: list[tuple[weakref.ref[BatchedSession], Callable[[], None]]] = []

    def tell(self) -> None:
        """Let everybody look again; what is called is called here."""
        with self._changed:
            kept, ready = [], []
            for ref, call in self._watchers:
                session = ref()
                done = session is None or self._is_there(session)
                (ready if done else kept).append((ref, call))
            self._watchers = kept
            self._changed.notify_all()
        for _, call in ready:
            call()

    def wait(self, sessions: Sequence[BatchedSession]) -> None:
        """Return once there is news of one of them."""
        with self._changed:
            self._changed.wait_for(lambda: any(self._is_there(session) for session in sessions))

    def watch(self, session: BatchedSession, call: Callable[[], None]) -> None:
        """Call once there is news of it, at once where there is some. It is not held meanwhile."""
        with self._changed:
            if not self._is_there(session):
                self._watchers.append((weakref.ref(session), call))
                return
        call()
