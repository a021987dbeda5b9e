"""Batch: a model whose steps several sessions share. The face of the batch engine."""

from __future__ import annotations

import signal
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from labkit.core.errors import LabkitError, PlanRefused, SessionFailed
from labkit.core.request import Request
from labkit.core.step import Step
from labkit.engine.batching.device import Device
from labkit.engine.batching.loop import Loop
from labkit.engine.batching.news import News
from labkit.engine.batching.row import Place, Row
from labkit.engine.batching.session import BatchedSession
from labkit.engine.method import Companions, Execution, Frozen, JoiningMethod
from labkit.engine.model import Model, check_options
from labkit.engine.shield import uninterrupted
from labkit.engine.state import Completion
from labkit.engine.text import TextStream
from labkit.model.row_bytes import row_bytes_later, row_bytes_most
from labkit.plan.plan import Plan
from labkit.plan.values import is_count, shown
from labkit.schedule.admission import Budget
from labkit.schedule.catalog import find_policy
from labkit.schedule.outcome import Outcome
from labkit.schedule.policy import Policy
from labkit.schedule.queue import Queue, RequestState
from labkit.schedule.scheduler import Scheduler

T = TypeVar("T")
CAP = 8
QUEUE = 64
# Unread steps of a session at which its row is held back, and at which it goes on.
MOST_UNREAD = 64
FEW_UNREAD = 16
# A policy that admits nobody of those that wait is asked again so often, and so long until they are told.
ASK_AGAIN_S, STALLED_S = 0.02, 5.0


class QueueFull(SessionFailed):
    """A batch has as many waiting requests as it takes."""


class Batch:
    """Sessions of one model that run as the rows of one batch, joining and leaving as they come and end.

    A lone session runs with bare caches at serial speed. cap: rows at most; with 1 a session's numbers do not
    depend on who else is there. policy: who is admitted next and what runs next. kv_budget_bytes: for the
    caches of all rows; a request is admitted with what it may grow to, and refused where that can never fit.
    queue: requests that may wait; one more raises QueueFull. options: defaults of every session.

    Sessions are held weakly: one that nobody holds is cancelled. It is a context manager; leaving it, or
    `close()`, cancels what runs. In `async with`, or after `turn_alone()`, a thread of its own turns it
    and owns the arrays; otherwise whoever reads a session or calls `turn()` does, always on one thread.
    """

    def __init__(
        self,
        model: Model,
        *,
        cap: int = CAP,
        policy: str | Policy | type[Policy] = "fcfs",
        kv_budget_bytes: int | None = None,
        queue: int = QUEUE,
        **options: Any,
    ) -> None:
        _check(cap=cap, queue=queue, kv_budget_bytes=1 if kv_budget_bytes is None else kv_budget_bytes)
        check_options(options)
        if options:
            # What no prompt could make run is said now.
            model.resolve(model.request([0], **options))
        self.model, self._options, self._queue_limit = model, options, queue
        self._limit_bytes = kv_budget_bytes
        self._companions: dict[str, Companions] = {}
        scheduler = Scheduler(find_policy(policy))
        self._loop = Loop(scheduler, cap, kv_budget_bytes, model.clock, self._companions_of, self._deliver)
        self._policy_name = scheduler.policy.SPEC.name
        self._sessions: dict[str, weakref.ref[BatchedSession]] = {}
        self._count = 0
        self._device: Device | None = None
        self._news = News(self._has_news)
        self._lock, self._inside = threading.RLock(), 0
        self._abandoned: deque[str] = deque()
        self._thread: int | None = None
        self._broken: BaseException | None = None
        self._closed, self._fruitless = False, 0

    def session(self, prompt: str | Sequence[int], *, client: str = "", **options: Any) -> BatchedSession:
        """Queue a session on text or token ids; options are those of `Model.request`.

        client: whom it belongs to, as far as the policy `fair` goes. Raises PlanRefused for a request that
        cannot run or never fits the KV budget, QueueFull where too many wait.
        """
        check_options(options)
        return self.open(self.model.request(prompt, **{**self._options, **options}), client=client)

    def open(self, request: Request, *, client: str = "") -> BatchedSession:
        """Queue a session for a request. Raises as `session` does."""
        self._check_open()
        if not isinstance(client, str):
            raise LabkitError("client: a name was needed", got=shown(client))
        if self._device is None:
            self._check_thread()
        session = BatchedSession(self, self.resolve(request), request)
        session.client = client
        session.prepare()
        return session

    def turn(self) -> bool:
        """Do one unit of work; False where there is none to do. Not where a thread of its own turns it."""
        if self._device is not None and not self._device.here:
            raise SessionFailed(
                "a batch without a thread of its own was needed to turn it", got="one with it"
            )
        self._check_thread()
        with self._exclusively(), uninterrupted(signals=(signal.SIGINT,)):
            self._free_abandoned()
            return self._loop.turn()

    def steps(self) -> Iterator[tuple[BatchedSession, Step]]:
        """Every step of every session of now, in the order in which they are made, to the end of all.

        A session's failure ends its steps; it is raised where the session itself is read.
        """
        held = self.sessions()
        while True:
            for session in held:
                while session.unread:
                    step = session.take()
                    assert step is not None
                    yield session, step
            known = {id(session) for session in held}
            held = [s for s in (*held, *(s for s in self.sessions() if id(s) not in known)) if _goes_on(s)]
            if not held:
                return
            if not any(session.unread for session in held):
                self._turn_or_wait(held)

    def run(self) -> list[Completion]:
        """Read all sessions to their ends: what each has committed, in the order in which they came."""
        held = self.sessions()
        for _ in self.steps():
            pass
        return [session.completion() for session in held]

    def sessions(self) -> list[BatchedSession]:
        """The sessions that have not ended and that somebody holds, in the order in which they came."""
        alive = [ref() for ref in list(self._sessions.values())]
        return [session for session in alive if session is not None and not session.finished]

    @property
    def queue(self) -> Queue:
        """What the policy sees now."""
        return self.on_device(self._loop.queue)

    def outcome(self) -> Outcome:
        """What ran so far, in the form that `schedule.simulate` gives: units of work, and ended requests."""
        return self.on_device(
            lambda: Outcome(self._policy_name, tuple(self._loop.ended), tuple(self._loop.units))
        )

    def turn_alone(self) -> Batch:
        """Turn on a thread of its own from now on, until it is closed. Before the first session."""
        self._check_open()
        if self._device is None:
            if self._thread is not None:
                need = "a batch that had no session yet was needed to give it a thread of its own"
                raise SessionFailed(need, got="one with arrays of another thread", next_step="make a new one")
            _settle_arrays(self.model)
            turn, failed = _weakly(self._turn_device), _weakly(self._break)
            self._device = Device(turn, failed, partial(_leave_thread, self.model))
            weakref.finalize(self, self._device.stop)
        return self

    def close(self) -> None:
        """Cancel what has not ended and free everything. Idempotent."""
        if self._closed:
            return
        self.on_device(self._end_all)
        if self._device is not None:
            self._device.close()
        self.tell()

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Batch:
        return self.turn_alone()

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        queue = self.queue
        return (
            f"<Batch {self.model.name} {self._policy_name} {len(queue.running)}/{queue.cap} rows, "
            f"{len(queue.waiting)} waiting>"
        )

    # What its sessions ask of it.

    def resolve(self, request: Request) -> Plan:
        """The plan of a request. Raises PlanRefused where it cannot run, or can never fit the budget."""
        plan = self.model.resolve(request)
        reason = None if self._limit_bytes is None else self._budget(plan).refusal(_asked(plan))
        if reason is not None:
            need = "kv: a request that fits the KV budget was needed"
            smaller = "a smaller max_tokens or prefill_chunk, or a KV scheme of fewer bytes"
            raise PlanRefused(need, got=reason, next_step=f"a larger kv_budget_bytes, {smaller}")
        return plan

    def start(self, plan: Plan, request: Request) -> Execution:
        return Row(self.model.start(plan, request), plan, request)

    def thaw(self, plan: Plan, request: Request, frozen: Frozen) -> Execution:
        return Row(self.model.thaw(plan, request, frozen), plan, request)

    def stream(self, request: Request, tokens: tuple[int, ...] = ()) -> TextStream:
        return self.model.stream(request, tokens)

    def identity(self) -> dict[str, Any]:
        return self.model.identity()

    def on_device(self, work: Callable[[], T]) -> T:
        if self._device is not None:
            return self._device.call(work)
        with self._exclusively():
            return work()

    def wait_for(self, session: BatchedSession) -> None:
        self._turn_or_wait([session])

    def watch(self, session: BatchedSession, call: Callable[[], None]) -> None:
        if self._device is None:
            need = "a batch with a thread of its own was needed to await a session"
            raise SessionFailed(need, got="one without", next_step="async with model.batch() as batch")
        self._news.watch(session, call)

    def check_goes_on(self, session: BatchedSession) -> None:
        if session.unread or session.due or session.ended:
            return
        if self._broken is not None:
            raise self._broken
        if self._stalled:
            raise self._stuck(session)

    def submit(self, session: BatchedSession, row: Row) -> None:
        self._check_open()
        if not session.name:
            session.name, self._count = f"r{self._count}", self._count + 1
        if self._limit_bytes is not None:
            budget, asked = self._budget(row.plan), _asked(row.plan)
            row.most_bytes, row.later_bytes = budget.needed(asked), budget.needed(replace(asked, generated=1))
        self._sessions[session.name] = weakref.ref(session, partial(self._abandon, session.name))
        self._loop.submit(row, session.name, session.client)
        self._fruitless = 0
        self._wake()

    def was_read(self, session: BatchedSession) -> None:
        row = session.row
        if row is None or row.place is not Place.PARKED:
            return
        if session.unread <= FEW_UNREAD and not session.due:
            self.on_device(lambda: self._loop.unpark(row))
            self._wake()

    def check_room(self) -> None:
        self._check_open()
        if self._loop.waiting >= self._queue_limit:
            need = f"a place in a queue of {self._queue_limit} was needed"
            step = "read some of its sessions first, or a larger queue="
            raise QueueFull(need, got="a full one", next_step=step)

    def check_bytes(self, needed: int, purpose: str) -> None:
        self._loop.check_bytes(needed, purpose)

    def keep_bytes(self, row: Row, kept: int) -> None:
        self._loop.keep_bytes(row, kept)

    def filled_bytes(self, row: Row) -> int:
        if self._limit_bytes is None or not row.holds_bytes:
            return 0
        state, held = row.state, row.reserved_bytes - row.kept_bytes
        return min(held, self._budget(row.plan).needed(replace(state, max_tokens=state.generated + 1)))

    def tell(self) -> None:
        self._news.tell()

    # What it does for them.

    def _turn_device(self) -> float | None:
        self._free_abandoned()
        if self._loop.turn():
            self._fruitless = 0
            return 0.0
        if not self._loop.stalled():
            return None
        self._fruitless += 1
        if self._stalled:
            self.tell()
        return ASK_AGAIN_S

    @property
    def _stalled(self) -> bool:
        """Whether a policy has let all wait for so long, nothing running, that none may count on it."""
        return self._fruitless * ASK_AGAIN_S > STALLED_S

    def _end_all(self) -> None:
        self._closed = True
        for session in self.sessions():
            session.cancel()
        self._loop.clear()

    def _deliver(self, row: Row) -> None:
        """Let the session of a row commit what was made for it; a row that nobody reads is held back."""
        ref = self._sessions.get(row.state.id)
        session = ref() if ref is not None else None
        if session is None:
            self._loop.forget(row)
            return
        session.commit_made()
        if session.finished:
            self._sessions.pop(session.name, None)
        elif session.unread >= MOST_UNREAD or session.due:
            self._loop.park(row)
            # Its reader may have come just before that.
            self.was_read(session)
        self.tell()

    def _has_news(self, session: BatchedSession) -> bool:
        for_good = session.ended or self._broken is not None or self._stalled
        return for_good or session.due or bool(session.unread)

    def _turn_or_wait(self, sessions: Sequence[BatchedSession]) -> None:
        """Until there is something to read of one of them. Raises where nothing will come."""
        if self._device is not None and not self._device.here:
            self._news.wait(sessions)
            for session in sessions:
                self.check_goes_on(session)
            return
        while not any(self._has_news(session) for session in sessions):
            if not self.turn():
                raise self._stuck(sessions[0])

    def _companions_of(self, row: Row) -> Companions | None:
        if "batch" not in row.plan.features:
            return None
        name = row.plan.method
        if name not in self._companions:
            method = cast(JoiningMethod, self.model.engine.method(row.plan))
            how = {"by_name": self.model.profile.quantizes, "gpu": _on_gpu(self.model)}
            self._companions[name] = method.join(self.model.graph, self.model.clock, **how)
        return self._companions[name]

    def _budget(self, plan: Plan) -> Budget:
        """The budget by what a row of this plan holds at most on its way to a length."""
        assert self._limit_bytes is not None
        profile, prompt, setting = self.model.profile, plan.prompt_tokens, plan.kv_setting

        def later(tokens: int) -> int:
            return row_bytes_later(profile, setting, prompt, tokens - prompt, plan.prefill_chunk)

        def most(tokens: int) -> int:
            return row_bytes_most(profile, setting, prompt, tokens - prompt, plan.prefill_chunk)

        return Budget(self._limit_bytes, later, most)

    def _abandon(self, name: str, _: object) -> None:
        """A session was dropped; its row goes at the next safe point, at once where that is now."""
        self._abandoned.append(name)
        if self._device is None and self._lock.acquire(blocking=False):
            try:
                # The garbage collector may call this in the midst of a unit of work.
                if not self._inside:
                    with self._exclusively():
                        pass
            finally:
                self._lock.release()
        self._wake()

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Keep others out, and free at the end what was dropped meanwhile."""
        with self._lock:
            self._inside += 1
            try:
                yield
            finally:
                if self._inside == 1:
                    self._free_abandoned()
                self._inside -= 1

    def _free_abandoned(self) -> None:
        while self._abandoned:
            name = self._abandoned.popleft()
            ref = self._sessions.get(name)
            if ref is not None and ref() is None:
                self._sessions.pop(name)
                for row in self._loop.rows():
                    if row.state.id == name:
                        self._loop.forget(row)

    def _break(self, error: BaseException) -> None:
        """The thread cannot go on: whoever reads is told why."""
        self._broken = error
        self.tell()

    def _wake(self) -> None:
        if self._device is not None:
            self._device.wake()

    def _check_open(self) -> None:
        if self._closed:
            raise SessionFailed("an open batch was needed", got="a closed one", next_step="make a new batch")

    def _check_thread(self) -> None:
        here = threading.get_ident()
        with self._lock:
            self._thread = here if self._thread is None else self._thread
        if self._thread != here:
            need = "the thread that first turned the batch was needed, since its arrays belong to it"
            step = "batch.turn_alone(), which turns it on a thread of its own"
            raise SessionFailed(need, got="another thread", next_step=step)

    def _stuck(self, session: BatchedSession) -> SessionFailed:
        queue = self.queue
        parked = sum(1 for row in self.on_device(self._loop.rows) if row.place is Place.PARKED)
        need = f"work for session {session.name} was needed, and the batch has none"
        got = (
            f"{len(queue.waiting)} waiting that {self._policy_name} admits none of, {parked} held back unread"
        )
        return SessionFailed(need, got=got, next_step="read, cancel or close the sessions that are held back")


def _weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """The same of an object that this does not keep; it gives None once that is gone."""
    ref = weakref.WeakMethod(method)

    def call(*given: Any) -> Any:
        bound = ref()
        return None if bound is None else bound(*given)

    return call


def _asked(plan: Plan) -> RequestState:
    return RequestState("", 0.0, plan.prompt_tokens, plan.max_tokens)


def _goes_on(session: BatchedSession) -> bool:
    """Whether somebody who passes over errors has more to read of it."""
    return bool(session.unread) or not (session.ended or session.due)


def _check(**counts: Any) -> None:
    for name, value in counts.items():
        if not is_count(value):
            raise LabkitError(f"{name}: a whole number of at least 1 was needed", got=shown(value))


def _on_gpu(model: Model) -> bool:
    return model.engine.catalog.backend.partition("/")[0] not in ("cpu", "null")


def _leave_thread(model: Model) -> None:
    """End mlx's own threads of this one, which would end the process when it exits before them."""
    if model.path is not None:
        import mlx.core as mx

        mx.clear_streams()


def _settle_arrays(model: Model) -> None:
    """Evaluate what a model still holds unevaluated, since no other thread could."""
    if model.path is not None:
        import mlx.core as mx

        mx.eval(model.graph(mx.array([[0]])), model.graph.parameters())
