"""BatchedSession: a session whose steps a batch makes, with those of others. Knows no schedule."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from labkit.core.errors import SessionFailed
from labkit.core.request import Request
from labkit.core.step import Step
from labkit.engine.batching.row import Row
from labkit.engine.host import Host
from labkit.engine.session import Session
from labkit.engine.state import Completion, State
from labkit.plan.plan import Plan

T = TypeVar("T")


class Owner(Host, Protocol):
    """The batch of a session."""

    def on_device(self, work: Callable[[], T]) -> T:
        """Call `work` on the thread that owns the device, between two units of work."""
        ...

    def wait_for(self, session: BatchedSession) -> None:
        """Return once there is something to read, or the end. Turns the batch where no thread does."""
        ...

    def submit(self, session: BatchedSession, row: Row) -> None:
        """Queue the row of a session."""
        ...

    def watch(self, session: BatchedSession, call: Callable[[], None]) -> None:
        """Call once, from the device's thread, when `wait_for` would return. Needs that thread."""
        ...

    def was_read(self, session: BatchedSession) -> None:
        """The session's reader has taken a step, or what was due."""
        ...

    def check_room(self) -> None:
        """Raise QueueFull where no more may wait, SessionFailed where it is closed."""
        ...

    def check_goes_on(self, session: BatchedSession) -> None:
        """Raise where there is nothing to read of it, and nothing will come, though it has not ended."""
        ...

    def check_bytes(self, needed: int, purpose: str) -> None:
        """Raise SessionFailed where the KV budget has no room for so many bytes more."""
        ...

    def keep_bytes(self, row: Row, kept: int) -> None:
        """Count so many bytes for the snapshots of a row."""
        ...

    def filled_bytes(self, row: Row) -> int:
        """What a copy of the row's caches may take as they are, 0 where there is no KV budget."""
        ...

    def tell(self) -> None:
        """Let everybody who waits look again."""
        ...


class BatchedSession(Session):
    """A session of a batch: the same, but its steps are made when the batch turns, whoever turns it.

    `step()` gives the next unread step and turns the batch until there is one. Steps that nobody reads are
    kept, up to a number at which the row is held back. `async for step in session` and `await session` read
    it where the batch runs on a thread of its own.
    """

    _host: Owner

    def __init__(self, host: Owner, plan: Plan, request: Request) -> None:
        super().__init__(host, plan, request)
        self.name = self.client = ""
        self._unread: deque[Step] = deque()
        self._error: BaseException | None = None
        self._committing = False

    @property
    def ended(self) -> bool:
        """Whether no more is made: what is unread is all that is left to read."""
        return (self.finished or self._closed) and not self._committing

    @property
    def unread(self) -> int:
        """Steps that were made and not read yet."""
        return len(self._unread)

    @property
    def due(self) -> bool:
        """Whether reading it raises once its unread steps are read."""
        return self._error is not None

    def step(self) -> Step | None:
        if not (self._unread or self.due or self.ended):
            self._host.wait_for(self)
        step = self.take()
        if step is None and not self.finished:
            self._check_open()
        return step

    def take(self) -> Step | None:
        """The next unread step, None without any; raises what is due, once all before it are read."""
        step = self._unread.popleft() if self._unread else None
        error = None
        if step is None:
            error, self._error = self._error, None
        self._host.was_read(self)
        if error is not None:
            raise error
        return step

    def commit_made(self) -> Step | None:
        """Commit what was made; called by the batch, on the device's thread.

        What that raises waits for the reader, in the place of the step.
        """
        self._committing = True
        try:
            step = super().step()
            if step is not None:
                self._unread.append(step)
            return step
        except BaseException as error:
            self._error = error
            return None
        finally:
            self._committing = False

    def prepare(self) -> None:
        self._host.on_device(self._queue)

    def cancel(self) -> None:
        self._host.on_device(super().cancel)
        self._host.tell()

    def close(self) -> None:
        self._host.on_device(super().close)
        self._host.tell()

    def _queue(self) -> None:
        if self.state is State.CREATED:
            self._host.check_room()
            super().prepare()
            self._submit()

    def _submit(self) -> None:
        row = self.row
        if row is not None:
            self._host.submit(self, row)

    def fork(self, **changes: Any) -> BatchedSession:
        """As `Session.fork`; the branch waits for a place in the batch."""
        return self._host.on_device(lambda: self._fork(changes))

    def snapshot(self) -> None:
        """As `Session.snapshot`; it takes its bytes of the KV budget, and is refused where there are none."""
        self._host.on_device(self._keep)

    def rewind(self, tokens: int, *, replay: bool = False) -> None:
        """As `Session.rewind`, of tokens read or not; the unread steps of those taken back are gone."""
        self._host.on_device(lambda: self._rewind(tokens, replay))

    def save(self, path: str | os.PathLike[str]) -> Path:
        return self._host.on_device(lambda: super(BatchedSession, self).save(path))

    @property
    def row(self) -> Row | None:
        """The row of the batch that it is; None before it is prepared and once it has ended."""
        return cast("Row | None", self._execution)

    def _keep(self) -> None:
        row, at = self.row, len(self._tokens)
        if row is None or at in self._snapshots:
            super().snapshot()
            return
        needed = self._host.filled_bytes(row)
        self._host.check_bytes(needed, "a snapshot")
        super().snapshot()
        kept = cast(Row, self._snapshots[at])
        kept.most_bytes = kept.later_bytes = needed
        self._count_kept()

    def _count_kept(self) -> None:
        if self.row is not None:
            kept = sum(cast(Row, row).reserved_bytes for row in self._snapshots.values())
            self._host.keep_bytes(self.row, kept)

    def _fork(self, changes: dict[str, Any]) -> BatchedSession:
        self._host.check_room()
        branch = cast(BatchedSession, super().fork(**changes))
        branch.client = self.client
        branch._count_kept()
        try:
            branch._submit()
        except SessionFailed:
            Session.close(branch)
            raise
        return branch

    def _rewind(self, tokens: int, replay: bool) -> None:
        before = self.row
        super().rewind(tokens, replay=replay)
        self._count_kept()
        length = len(self.request.prompt) + len(self.tokens)
        self._unread = deque(s for s in self._unread if s.kind == "prefill" or s.position <= length)
        if self.row is not before:
            self._submit()
        self._host.was_read(self)

    def _replayed(self, keep: int) -> Any:
        if self.row is not None:
            # What runs again stands beside what it replaces until it is there.
            self._host.check_bytes(self.row.most_bytes, "a replay")
        return super()._replayed(keep)

    def _branch(self, plan: Plan, request: Request) -> BatchedSession:
        return BatchedSession(self._host, plan, request)

    def __aiter__(self) -> AsyncIterator[Step]:
        return self._read()

    async def _read(self) -> AsyncIterator[Step]:
        while True:
            ready = asyncio.Event()
            self._host.watch(self, partial(_set_soon, asyncio.get_running_loop(), ready))
            await ready.wait()
            step = self.take()
            if step is not None:
                yield step
            elif self.finished:
                return
            else:
                self._check_open()
                self._host.check_goes_on(self)

    def __await__(self) -> Generator[Any, None, Completion]:
        return self._finish_reading().__await__()

    async def _finish_reading(self) -> Completion:
        async for _ in self:
            pass
        return self.completion()


def _set_soon(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set an event of another thread's loop, unless that loop has ended meanwhile."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(event.set)
