"""Holding sessions of a batch: branches, rewinds and files as of a serial one; memory; many awaited."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import labkit
from labkit.core.errors import SessionFailed
from labkit.core.sampling import Sampling
from labkit.core.step import Step
from labkit.core.taps import Taps
from labkit.engine.batching.batch import MOST_UNREAD, Batch
from labkit.engine.batching.session import BatchedSession
from labkit.engine.model import Model
from labkit.engine.session import State
from labkit.model.row_bytes import row_bytes_most
from tests.numerics.batch_cases import kv_of
from tests.numerics.batch_rows import OPTIONS, alone, assert_same, decoded, opened, prompt_of, read_all
from tests.numerics.tiny_models import GEMMA3, LLAMA, MAMBA, tiny_model

TRUNK, OTHERS = prompt_of(20), [prompt_of(9, salt=1), prompt_of(31, salt=2)]
SAMPLING = Sampling(temperature=1.0, top_p=0.95, repetition_penalty=1.2)
OPTION: dict[str, Any] = {"sampling": SAMPLING, "seed": 3, "max_tokens": 20}
# A window that the trunk is about to pass.
GEMMA = {**GEMMA3, "num_hidden_layers": 3}
MODELS = {"llama": LLAMA, "gemma3": GEMMA, "mamba": MAMBA}


def pairs(*schemes: str) -> list[tuple[str, str]]:
    """Models and KV schemes; a recurrent model has bf16 alone."""
    return [(name, kv) for name in MODELS for kv in ("bf16", *(schemes if name != "mamba" else ()))]


@pytest.fixture(scope="module")
def llama() -> Model:
    return tiny_model(LLAMA, mx.bfloat16)


def trunk_of(batch: Batch, tokens: int, **options: Any) -> tuple[BatchedSession, list[BatchedSession]]:
    """A session that has decoded this many tokens in company, and the others."""
    others = [opened(batch, prompt, max_tokens=40) for prompt in OTHERS]
    trunk = opened(batch, TRUNK, **{**OPTION, **options})
    while len(trunk.tokens) < tokens:
        batch.turn()
    assert len(batch.queue.decoding) == 3
    return trunk, others


def read(session: BatchedSession) -> list[Step]:
    """The decode steps that were made and not read."""
    found = [session.take() for _ in range(session.unread)]
    return [step for step in found if step is not None and step.tokens]


@pytest.mark.parametrize(("name", "kv"), pairs("affine:8", "own"))
def test_a_branch_goes_on_as_one_of_a_serial_session(name: str, kv: str, tmp_path: Path) -> None:
    model = tiny_model(MODELS[name], mx.bfloat16)
    options = {"kv": kv_of(kv, tmp_path)}
    changes: list[dict[str, Any]] = [
        {},
        {"seed": 11},
        {"max_tokens": 9},
        {"sampling": Sampling(), "top_logprobs": 2},
    ]
    serial = model.session(TRUNK, **{**OPTIONS, **OPTION, **options})
    serial.run(until=lambda step: len(serial.tokens) == 6)
    want = [decoded(serial.fork(**change)) for change in changes] + [decoded(serial)]
    with model.batch() as batch:
        trunk, others = trunk_of(batch, 6, **options)
        branches = [trunk.fork(**change) for change in changes]
        read(trunk)
        steps = read_all(batch)
    for session, its in zip([*branches, trunk], want, strict=True):
        assert_same(steps[session.name], its)
    assert len({branch.tokens for branch in branches}) == 4
    for other, prompt in zip(others, OTHERS, strict=True):
        assert_same(steps[other.name], alone(model, prompt, max_tokens=40))


@pytest.mark.parametrize("name", MODELS)
def test_a_rewind_midway_is_as_if_nothing_had_been_drawn(name: str) -> None:
    model = tiny_model(MODELS[name], mx.bfloat16)
    whole = alone(model, TRUNK, **OPTION)
    with model.batch() as batch:
        trunk, others = trunk_of(batch, 5)
        trunk.snapshot()
        while len(trunk.tokens) < 15:
            batch.turn()
        made = read(trunk)
        assert_same(made[:8], whole[:8])
        count = len(trunk.tokens) - 8
        if name != "llama":
            # The gemma's window of 32 is passed.
            with pytest.raises(SessionFailed, match="replay=True"):
                trunk.rewind(count)
        trunk.rewind(count, replay=name != "llama")
        assert trunk.tokens == tuple(step.tokens[0] for step in whole[:8])
        steps = read_all(batch)
        assert_same(steps[trunk.name], whole[8:])
        for other, prompt in zip(others, OTHERS, strict=True):
            assert_same(steps[other.name], alone(model, prompt, max_tokens=40))


def test_unread_steps_of_tokens_that_are_taken_back_are_gone(llama: Model) -> None:
    whole = alone(llama, TRUNK, **OPTION)
    with llama.batch() as batch:
        trunk, _ = trunk_of(batch, 10)
        trunk.rewind(len(trunk.tokens) - 4)
        assert_same(decoded(trunk), whole)


@pytest.mark.parametrize(("name", "kv"), pairs("affine:8", "affine:4/g32"))
def test_what_is_saved_in_a_batch_goes_on_serially(name: str, kv: str, tmp_path: Path) -> None:
    model = tiny_model(MODELS[name], mx.bfloat16)
    whole = alone(model, TRUNK, kv=kv, **OPTION)
    with model.batch() as batch:
        trunk, _ = trunk_of(batch, 7, kv=kv)
        count = len(trunk.tokens)
        resumed = labkit.resume(trunk.save(tmp_path / "half-done"), model=model)
        assert not isinstance(resumed, BatchedSession)
        assert_same(decoded(resumed), whole[count:])
        # Saving took nothing away.
        assert_same(decoded(trunk), whole)


def test_a_reader_that_never_reads_holds_no_more_than_its_due(llama: Model) -> None:
    with llama.batch(cap=4) as batch:
        idle = [opened(batch, prompt_of(20, salt=i), max_tokens=1500, logprobs=False) for i in range(3)]
        first = opened(batch, TRUNK, max_tokens=120, logprobs=False)
        first.run()
        held, bytes_then = [session.unread for session in idle], active_bytes()
        assert held == [MOST_UNREAD] * 3
        for _ in range(3):
            opened(batch, TRUNK, max_tokens=40, logprobs=False).run()
        assert [session.unread for session in idle] == held
        assert active_bytes() <= bytes_then
        with pytest.raises(SessionFailed, match=r"0 waiting .*, 2 held back unread"):
            # One of them is cancelled by dropping it.
            lost(batch, idle)
        for index, session in enumerate(idle):
            want = [step.tokens for step in alone(llama, prompt_of(20, salt=index), max_tokens=90)]
            got = [step.tokens for _ in range(92) if (step := session.step()) is not None and step.tokens]
            assert got == want


def lost(batch: Batch, idle: list[BatchedSession]) -> None:
    """Drop the last, and wait for a session that nobody would ever make a step for."""
    idle.pop()
    waiting = BatchedSession(batch, idle[0].plan, idle[0].request)
    batch.wait_for(waiting)


def active_bytes() -> int:
    gc.collect()
    mx.synchronize()
    return mx.get_active_memory()


# Those of which a batch keeps a bounded history.
REMEMBERED = {"Unit", "Timing"}


def objects_of_ours() -> Counter[str]:
    gc.collect()
    ours = (type(one) for one in gc.get_objects() if str(type(one).__module__).startswith("labkit"))
    return Counter(kind.__name__ for kind in ours if kind.__name__ not in REMEMBERED)


def churn(batch: Batch, count: int) -> None:
    """So many sessions that end in every way there is."""

    def failing(logprobs: mx.array) -> mx.array:
        raise ZeroDivisionError

    for index in range(count):
        prompt, way = prompt_of(5 + index % 30, salt=index), index % 5
        kv = "affine:8" if index % 2 else "bf16"
        session = opened(batch, prompt, kv=kv, max_tokens=6, sampler=failing if way == 1 else None)
        if way == 2:
            session.step()
            session.cancel()
        elif way == 3:
            session.step()
            session.fork(seed=2)
        elif way == 4:
            batch.turn()
        else:
            read_all(batch)


def test_memory_after_two_hundred_sessions_is_that_after_twenty(llama: Model) -> None:
    with llama.batch(cap=4, queue=300) as batch:
        churn(batch, 20)
        read_all(batch)
        bytes_then, objects_then = active_bytes(), objects_of_ours()
        churn(batch, 180)
        read_all(batch)
        assert abs(active_bytes() - bytes_then) <= 0.02 * bytes_then
        assert objects_of_ours() == objects_then


def test_closing_midway_gives_all_memory_back(llama: Model) -> None:
    def hold_and_close() -> None:
        with llama.batch(cap=3) as batch:
            trunk, others = trunk_of(batch, 4)
            more = [opened(batch, prompt_of(40)), trunk.fork(seed=4)]
            trunk.snapshot()
            batch.turn()
            batch.close()
            assert {one.state for one in (trunk, *others, *more)} == {State.CANCELLED}

    hold_and_close()
    before = active_bytes()
    for _ in range(5):
        hold_and_close()
    assert active_bytes() == before


def test_a_dropped_session_frees_its_row_while_others_decode(llama: Model) -> None:
    with llama.batch() as batch:
        trunk, others = trunk_of(batch, 5)
        assert trunk.row is not None
        run = weakref.ref(trunk.row.run)
        read(trunk)
        gc.disable()
        try:
            del trunk
            assert run() is None
        finally:
            gc.enable()
        assert len(batch.queue.running) == 2
        for other, prompt in zip(others, OTHERS, strict=True):
            assert_same(decoded(other), alone(llama, prompt, max_tokens=40))


def test_rows_stay_within_a_kv_budget(llama: Model) -> None:
    """Two rows of a room of 256 positions fit, padding included."""
    plan = llama.resolve(llama.request(TRUNK, **OPTIONS))
    row = row_bytes_most(llama.profile, plan.kv_setting, len(TRUNK), 12, 16)
    with llama.batch(kv_budget_bytes=2 * row + row // 2) as batch:
        sessions = [opened(batch, prompt_of(20 + i, salt=i)) for i in range(6)]
        steps = read_all(batch)
        units = batch.outcome().units
    assert max(unit.running for unit in units) == 2
    assert all(unit.kv_bytes <= unit.reserved_bytes <= 2 * row + row // 2 for unit in units)
    for index, session in enumerate(sessions):
        assert_same(steps[session.name], alone(llama, prompt_of(20 + index, salt=index)))


async def all_awaited(model: Model, count: int, **how: Any) -> list[tuple[int, ...]]:
    async with model.batch(cap=4, queue=count, **how) as batch:
        sessions = [opened(batch, prompt_of(5 + i % 30, salt=i), max_tokens=6) for i in range(count)]
        completions = await asyncio.gather(*sessions)
    assert all(session.state is State.COMPLETED for session in sessions)
    return [completion.tokens for completion in completions]


def test_sixty_four_sessions_are_awaited_at_once(llama: Model) -> None:
    got = asyncio.run(all_awaited(llama, 64))
    assert got == [
        tuple(step.tokens[0] for step in alone(llama, prompt_of(5 + i % 30, salt=i), max_tokens=6))
        for i in range(64)
    ]
    assert "labkit-batch" not in {thread.name for thread in threading.enumerate()}


def test_two_batches_with_threads_of_their_own_on_one_model(llama: Model) -> None:
    async def both() -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        # One ends, and its thread with it, in the midst of the other.
        return await asyncio.gather(all_awaited(llama, 6), all_awaited(llama, 30, policy="fair"))

    lazy = mx.arange(5) * 2
    first, second = asyncio.run(both())
    assert lazy.tolist() == [0, 2, 4, 6, 8]
    assert first == second[:6]
    for index in (0, 29):
        want = alone(llama, prompt_of(5 + index, salt=index), max_tokens=6)
        assert second[index] == tuple(step.tokens[0] for step in want)


async def bystander_and(model: Model, act: Callable[[Batch, BatchedSession], Any]) -> BatchedSession:
    """Await one session while something happens to another that is being awaited too."""
    async with model.batch(cap=3) as batch:
        other, victim = opened(batch, OTHERS[0], max_tokens=30), opened(batch, TRUNK, max_tokens=1500)
        reading = asyncio.create_task(decoded_async(victim))
        steps = asyncio.create_task(decoded_async(other))
        while len(victim.tokens) < 5:
            await asyncio.sleep(0.001)
        act(batch, victim)
        await asyncio.wait_for(asyncio.gather(reading, return_exceptions=True), 60)
        if not batch._closed:
            assert_same(await steps, alone(model, OTHERS[0], max_tokens=30))
        await asyncio.gather(steps, return_exceptions=True)
    return victim


async def decoded_async(session: BatchedSession) -> list[Step]:
    return [step async for step in session if step.tokens]


def from_a_thread(batch: Batch, session: BatchedSession) -> None:
    thread = threading.Thread(target=session.cancel)
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    "act",
    [lambda batch, victim: victim.cancel(), from_a_thread, lambda batch, victim: batch.close()],
    ids=["cancel", "cancel from a thread", "close"],
)
def test_who_awaits_a_session_hears_of_its_end(llama: Model, act: Callable[..., Any]) -> None:
    victim = asyncio.run(bystander_and(llama, act))
    assert victim.state is State.CANCELLED
    tokens = [step.tokens[0] for step in alone(llama, TRUNK, max_tokens=len(victim.tokens))]
    assert list(victim.tokens) == tokens


@pytest.mark.parametrize("count", [0, 1, 5, 11])
def test_cancel_at_a_phase_of_a_batch_with_its_own_thread(llama: Model, count: int) -> None:
    """A gate in the tap of the step holds the device there until the cancel has been asked for."""
    reached, gate = threading.Event(), threading.Event()
    seen = list[Step]()

    def hold(step: Step) -> None:
        seen.append(step)
        if len([s for s in seen if s.tokens]) == count and not reached.is_set():
            reached.set()
            assert gate.wait(60)

    async def run() -> BatchedSession:
        async with llama.batch() as batch:
            other = opened(batch, OTHERS[0], max_tokens=30)
            victim = opened(batch, TRUNK, taps=Taps(call=hold))
            while not reached.is_set():
                await asyncio.sleep(0.001)
            asking = asyncio.create_task(asyncio.to_thread(victim.cancel))
            await asyncio.sleep(0.05)
            gate.set()
            await asking
            assert_same(await decoded_async(other), alone(llama, OTHERS[0], max_tokens=30))
            return victim

    victim = asyncio.run(run())
    assert (victim.state, len(victim.tokens)) == (State.CANCELLED, count)


def test_a_failure_in_a_batch_with_its_own_thread_reaches_its_reader_alone(llama: Model) -> None:
    def failing(logprobs: mx.array) -> mx.array:
        raise ZeroDivisionError("of my own")

    async def run() -> None:
        async with llama.batch() as batch:
            other, broken = opened(batch, OTHERS[0]), opened(batch, TRUNK, sampler=failing)
            with pytest.raises(ZeroDivisionError, match="of my own"):
                await broken
            assert broken.state is State.FAILED
            assert_same(await decoded_async(other), alone(llama, OTHERS[0]))

    asyncio.run(run())
