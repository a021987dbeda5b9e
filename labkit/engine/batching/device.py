"""Device: the thread that owns the arrays of a batch, where it has one of its own. Knows no rows."""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar, cast

T = TypeVar("T")


class Device:
    """Does work that is handed over, and turns in between as long as there is something to turn.

    turn: does one unit of work and says in how many seconds to turn again, None for once it is woken. failed:
    told what it raised. leave: called at the end, for what belongs to the thread. All are called on the
    device's thread alone. The thread is ended before the interpreter, which must not take mlx away from it.
    """

    def __init__(
        self,
        turn: Callable[[], float | None],
        failed: Callable[[BaseException], None],
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        self._turn, self._failed, self._leave = turn, failed, leave
        self._orders: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._wake = threading.Condition()
        self._closing, self._rest_s = False, cast("float | None", 0.0)
        self._afterwards = threading.RLock()
        self._thread = threading.Thread(target=self._run, name="labkit-batch", daemon=True)
        atexit.register(self.close)
        self._thread.start()

    @property
    def here(self) -> bool:
        """Whether this is the device's thread."""
        return threading.current_thread() is self._thread

    def call(self, work: Callable[[], T]) -> T:
        """Do `work` between two units; give what it returns, raise what it raises.

        Once the thread has ended, `work` is done here, one at a time.
        """
        if self.here:
            return work()
        order: Future[T] = Future()
        with self._wake:
            handed_over = not self._closing
            if handed_over:
                self._orders.append((work, order))
                self._rest_s = 0.0
                self._wake.notify_all()
        if handed_over:
            return order.result()
        self._thread.join()
        with self._afterwards:
            return work()

    def wake(self) -> None:
        """Look again whether there is something to turn."""
        with self._wake:
            self._rest_s = 0.0
            self._wake.notify_all()

    def stop(self) -> None:
        """Let the thread end after the unit under way and the work that was handed over."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()

    def close(self) -> None:
        """Stop, and return once the thread has ended. Idempotent."""
        self.stop()
        if not self.here:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                if self._rest_s != 0 and not self._orders and not self._closing:
                    self._wake.wait(self._rest_s)
                closing = self._closing
            # Within a call of its own: what was handed over must not be held while the thread waits.
            self._carry_out()
            if closing:
                atexit.unregister(self.close)
                self._leave()
                return
            self._advance()

    def _carry_out(self) -> None:
        with self._wake:
            orders = list(self._orders)
            self._orders.clear()
        for work, order in orders:
            _answer(work, order)

    def _advance(self) -> None:
        with self._wake:
            # Whoever wakes it meanwhile sets this again.
            self._rest_s = None
        try:
            rest_s = self._turn()
        except BaseException as error:
            self._failed(error)
            return
        if rest_s is not None:
            with self._wake:
                self._rest_s = rest_s if self._rest_s is None else self._rest_s


def _answer(work: Callable[[], Any], order: Future[Any]) -> None:
    try:
        order.set_result(work())
    except BaseException as error:
        order.set_exception(error)
