"""A batch on a thread of its own, read from others: no step is lost, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from labkit.core.errors import SessionFailed
from labkit.core.step import Step
from labkit.core.taps import Taps
from labkit.engine.batching.batch import Batch, QueueFull
from labkit.engine.batching.device import Device
from labkit.engine.batching.session import BatchedSession
from labkit.engine.model import Model
from labkit.schedule.policies import FirstCome
from labkit.schedule.policy import PolicySpec
from labkit.schedule.queue import Queue
from tests.unit.null_session import null_model_without_mlx

WAIT_S = 20.0
OPTIONS: dict[str, Any] = {"max_tokens": 6, "prefill_chunk": 16, "stop_tokens": ()}


class NeverAdmits(FirstCome):
    SPEC: ClassVar[PolicySpec] = PolicySpec("never", "nobody")

    def admit(self, queue: Queue) -> Sequence[str]:
        return []


class Door:
    """A tap that lets steps through up to one, and that one once it is opened."""

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, 0
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, step: Step) -> None:
        self.seen += bool(step.tokens)
        if self.seen == self.at:
            self.reached.set()
            assert self.opened.wait(WAIT_S)


@pytest.fixture(scope="module")
def null() -> Model:
    return null_model_without_mlx()


@pytest.fixture
def others() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def opened(batch: Batch, prompt: str = "some words", **options: Any) -> BatchedSession:
    return batch.session(prompt, **{**OPTIONS, **options})


def tokens_of(session: BatchedSession) -> list[int]:
    return [token for step in session.steps() for token in step.tokens]


def test_the_last_step_is_there_when_the_session_says_that_it_has_ended(
    null: Model, others: ThreadPoolExecutor
) -> None:
    door = Door(at=OPTIONS["max_tokens"])
    with null.batch().turn_alone() as batch:
        session = opened(batch, taps=Taps(call=door))
        assert door.reached.wait(WAIT_S)
        assert session.finished and not session.ended
        read = others.submit(tokens_of, session)
        door.opened.set()
        assert tuple(read.result(WAIT_S)) == session.tokens
    assert len(session.tokens) == 6


def test_what_the_last_tap_raises_is_raised_to_a_reader_who_waits(
    null: Model, others: ThreadPoolExecutor
) -> None:
    door = Door(at=OPTIONS["max_tokens"])

    def tap(step: Step) -> None:
        door(step)
        if door.reached.is_set():
            raise ValueError("of the last step")

    with null.batch().turn_alone() as batch:
        session = opened(batch, taps=Taps(call=tap))
        assert door.reached.wait(WAIT_S)
        read = others.submit(tokens_of, session)
        door.opened.set()
        with pytest.raises(ValueError, match="of the last step"):
            read.result(WAIT_S)


def test_closing_it_cancels_who_is_read_elsewhere(null: Model, others: ThreadPoolExecutor) -> None:
    door = Door(at=3)
    batch = null.batch().turn_alone()
    other = opened(batch)
    session = opened(batch, taps=Taps(call=door))
    reads = [others.submit(one.run) for one in (session, other)]
    assert door.reached.wait(WAIT_S)
    device: Any = batch._device
    closed = others.submit(batch.close)
    while not device._orders:
        pass
    door.opened.set()
    closed.result(WAIT_S)
    for read in reads:
        assert read.result(WAIT_S).finish_reason in ("cancelled", "length")
    assert session.finish_reason == "cancelled"


def test_a_session_that_is_closed_elsewhere_says_so_to_its_reader(
    null: Model, others: ThreadPoolExecutor
) -> None:
    with null.batch(policy=NeverAdmits()).turn_alone() as batch:
        session = opened(batch)
        session.close()
        with pytest.raises(SessionFailed, match="an open session was needed"):
            others.submit(session.step).result(WAIT_S)


def _reads(session: BatchedSession) -> Any:
    return session.run()


def _awaits(session: BatchedSession) -> Any:
    async def read() -> Any:
        return await session

    return asyncio.run(read())


@pytest.mark.parametrize("read", [_reads, _awaits])
def test_who_waits_under_a_policy_that_admits_nobody_is_told(
    null: Model,
    others: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[BatchedSession], Any],
) -> None:
    monkeypatch.setattr("labkit.engine.batching.batch.STALLED_S", 0.1)
    with null.batch(policy=NeverAdmits).turn_alone() as batch:
        session = opened(batch)
        with pytest.raises(SessionFailed, match="1 waiting that never admits none of"):
            others.submit(read, session).result(WAIT_S)
        with pytest.raises(SessionFailed, match="admits none of"):
            others.submit(batch.run).result(WAIT_S)


class AfterAWhile(FirstCome):
    """Admits at its fifth question, whether somebody comes or not."""

    SPEC: ClassVar[PolicySpec] = PolicySpec("later", "nobody at first")
    questions = 0

    def admit(self, queue: Queue) -> Sequence[str]:
        self.questions += 1
        return super().admit(queue) if self.questions >= 5 else []


def test_a_policy_may_let_requests_wait_for_a_while(null: Model, others: ThreadPoolExecutor) -> None:
    with null.batch(policy=AfterAWhile).turn_alone() as batch:
        assert others.submit(opened(batch).run).result(WAIT_S).finish_reason == "length"


def test_many_threads_open_sessions_and_the_queue_keeps_its_bound(
    null: Model, others: ThreadPoolExecutor
) -> None:
    with null.batch(policy=NeverAdmits, queue=5).turn_alone() as batch:
        held: list[BatchedSession] = []
        start = threading.Barrier(8)

        def fill(_: int) -> int:
            start.wait(WAIT_S)
            refused = 0
            for _ in range(10):
                try:
                    held.append(opened(batch))
                except QueueFull:
                    refused += 1
            return refused

        assert sum(others.map(fill, range(8))) == 75
        assert len(held) == len(batch.queue.waiting) == 5


def test_many_threads_open_and_read_and_each_has_the_tokens_that_it_has_alone(
    null: Model, others: ThreadPoolExecutor
) -> None:
    def alone(prompt: str) -> tuple[int, ...]:
        return null.session(prompt, **OPTIONS).run().tokens

    prompts = ["x" * (1 + 7 * i % 40) for i in range(64)]
    with null.batch(cap=3).turn_alone() as batch:
        found = list(others.map(lambda prompt: tuple(tokens_of(opened(batch, prompt))), prompts))
    assert found == [alone(prompt) for prompt in prompts]


def test_a_batch_that_nobody_holds_ends_its_thread(null: Model) -> None:
    batch = null.batch().turn_alone()
    opened(batch).run()
    device: Any = batch._device
    del batch
    gc.collect()
    device._thread.join(WAIT_S)
    assert not device._thread.is_alive()


def test_a_device_that_has_ended_does_what_is_asked_one_at_a_time(others: ThreadPoolExecutor) -> None:
    device = Device(lambda: None, lambda error: None)
    device.close()
    device.close()
    inside = 0

    def work() -> int:
        nonlocal inside
        inside += 1
        found = inside
        inside -= 1
        return found

    assert list(others.map(lambda _: device.call(work), range(200))) == [1] * 200


def test_work_that_a_device_has_when_it_stops_is_done(others: ThreadPoolExecutor) -> None:
    held, left = threading.Event(), list[str]()

    def turn() -> None:
        assert held.wait(WAIT_S)

    device = Device(turn, lambda error: None, lambda: left.append("left"))
    order = others.submit(device.call, lambda: left.append("done"))
    while not device._orders:
        pass
    device.stop()
    late = others.submit(device.call, lambda: left.append("afterwards"))
    held.set()
    order.result(WAIT_S)
    late.result(WAIT_S)
    assert left == ["done", "left", "afterwards"]
