"""A batch on the null model: sessions are what they are alone, however it is turned, dropped or not read."""

from __future__ import annotations

import gc
import signal
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from labkit.core.errors import LabkitError, PlanRefused, SessionFailed
from labkit.core.step import Step
from labkit.core.taps import Taps
from labkit.engine.batching.batch import FEW_UNREAD, MOST_UNREAD, Batch, QueueFull
from labkit.engine.batching.session import BatchedSession
from labkit.engine.model import Model
from labkit.engine.session import Session, State
from tests.unit.null_session import null_model_without_mlx

PROMPTS = ("a", "two words", "a third prompt that is longer than the others", "x" * 40)


@pytest.fixture(scope="module")
def null() -> Model:
    return null_model_without_mlx()


def opened(batch: Batch, count: int, **options: Any) -> list[BatchedSession]:
    asked = {"max_tokens": 12, "prefill_chunk": 16, "stop_tokens": (), **options}
    return [batch.session(PROMPTS[i % len(PROMPTS)], **asked) for i in range(count)]


def alone(model: Model, index: int, **options: Any) -> Session:
    asked = {"max_tokens": 12, "prefill_chunk": 16, "stop_tokens": (), **options}
    session = model.session(PROMPTS[index % len(PROMPTS)], **asked)
    session.run()
    return session


def test_every_session_is_what_it_is_alone(null: Model) -> None:
    with null.batch(cap=3) as batch:
        sessions = opened(batch, 7)
        completions = batch.run()
    expected = [alone(null, i).completion() for i in range(7)]
    assert completions == expected
    assert [session.completion() for session in sessions] == expected


def test_steps_come_in_the_order_in_which_they_are_made(null: Model) -> None:
    with null.batch(cap=2) as batch:
        first, second = opened(batch, 2, max_tokens=3)
        told = [(session.name, step.kind) for session, step in batch.steps()]
    assert told == [("r1", "prefill"), *[("r0", "decode"), ("r1", "decode")] * 3]
    assert (first.tokens, second.tokens) == (
        alone(null, 0, max_tokens=3).tokens,
        alone(null, 1, max_tokens=3).tokens,
    )


def test_reading_one_session_turns_all(null: Model) -> None:
    with null.batch() as batch:
        read, other = opened(batch, 2)
        read.run()
        # Read to its end, it leaves the other with all but what the one still needed then.
        assert len(other.tokens) >= 11
        assert other.unread == len(other.tokens) + 1
        assert [step.kind for step in other.steps()] == ["prefill"] + ["decode"] * 12


def test_no_more_rows_than_the_cap_and_no_more_waiting_than_the_queue_takes(null: Model) -> None:
    with null.batch(cap=2, queue=3) as batch:
        sessions = opened(batch, 3)
        with pytest.raises(QueueFull, match="a place in a queue of 3 was needed"):
            opened(batch, 1)
        batch.turn()
        # Two were admitted, so two more may wait.
        sessions += opened(batch, 2)
        with pytest.raises(QueueFull):
            sessions[0].fork()
        assert repr(batch) == "<Batch null fcfs 2/2 rows, 3 waiting>"
        rows = {unit.running for unit in ran(batch)}
    assert rows == {1, 2}


def ran(batch: Batch) -> tuple[Any, ...]:
    batch.run()
    return batch.outcome().units


@pytest.mark.parametrize("options", [{"cap": 0}, {"queue": 0}, {"kv_budget_bytes": 0}, {"cap": True}])
def test_counts_below_one_are_refused(null: Model, options: dict[str, Any]) -> None:
    with pytest.raises(LabkitError, match="a whole number of at least 1 was needed"):
        null.batch(**options)


def test_options_that_no_session_takes_are_refused(null: Model) -> None:
    with pytest.raises(PlanRefused, match="options of a session were needed"):
        null.batch(temprature=1.0)
    with null.batch(max_tokens=2, stop_tokens=()) as batch:
        assert len(batch.session("a").run().tokens) == 2
        assert len(batch.session("a", max_tokens=3).run().tokens) == 3
        with pytest.raises(PlanRefused, match="options of a session were needed"):
            batch.session("a", seeed=1)


def test_a_session_that_nobody_reads_is_held_back_and_goes_on_when_it_is_read(null: Model) -> None:
    with null.batch(cap=2) as batch:
        (idle,) = opened(batch, 1, max_tokens=200)
        (read,) = opened(batch, 1, max_tokens=300)
        read.run()
        assert read.state is State.COMPLETED
        assert idle.unread == MOST_UNREAD
        assert not idle.finished
        # Its place is free for others.
        assert len(batch.queue.running) == 0
        assert batch.session("b", max_tokens=2, stop_tokens=()).run().finish_reason == "length"
        assert idle.unread == MOST_UNREAD
        for _ in range(MOST_UNREAD - FEW_UNREAD):
            idle.step()
        assert idle.unread == FEW_UNREAD
        assert len(batch.queue.waiting) == 1
        idle.run()
    assert idle.tokens == alone(null, 0, max_tokens=200).tokens


def test_rewinding_what_was_never_read_lets_a_held_back_session_go_on(null: Model) -> None:
    with null.batch() as batch:
        idle, read = opened(batch, 2, max_tokens=200)
        read.run()
        idle.rewind(len(idle.tokens))
        assert idle.unread == 0
        idle.run()
    assert idle.tokens == alone(null, 0, max_tokens=200).tokens


def test_a_batch_in_which_nothing_can_go_on_says_why(null: Model) -> None:
    with null.batch(cap=2, kv_budget_bytes=64 * 210) as batch:
        (idle,) = opened(batch, 1, max_tokens=200)
        while batch.turn():
            pass
        (late,) = opened(batch, 1, max_tokens=20)
        with pytest.raises(SessionFailed, match="1 waiting that fcfs admits none of, 1 held back unread"):
            late.step()
        idle.cancel()
        assert len(late.run().tokens) == 20


def test_a_request_beyond_the_budget_is_refused_and_the_others_take_turns(null: Model) -> None:
    """A row of the null model holds 64 bytes a token; it counts the newest too, which no cache holds yet."""
    with null.batch(cap=8, kv_budget_bytes=64 * 60) as batch:
        with pytest.raises(PlanRefused, match=r"may take .* bytes, and the KV budget is 3840"):
            batch.session("a" * 50, max_tokens=12)
        sessions = opened(batch, 8, max_tokens=10)
        units = ran(batch)
    assert all(unit.kv_bytes - 64 * unit.running <= unit.reserved_bytes <= 64 * 60 for unit in units)
    assert max(unit.running for unit in units) > 1
    assert all(session.state is State.COMPLETED for session in sessions)


def test_closing_a_batch_midway_cancels_and_frees_all(null: Model) -> None:
    batch = null.batch(cap=2)
    sessions = opened(batch, 4)
    for _ in range(6):
        batch.turn()
    held = [session.tokens for session in sessions]
    batch.close()
    batch.close()
    assert {session.state for session in sessions} == {State.CANCELLED}
    assert [session.tokens for session in sessions] == held
    assert all(session.row is None for session in sessions)
    with pytest.raises(SessionFailed, match="an open batch was needed"):
        batch.session("a")
    # What had been made before stays there to be read.
    assert len([step for step in sessions[0].steps() if step.tokens]) == len(held[0]) > 0


def test_a_session_that_nobody_holds_is_gone_at_once(null: Model) -> None:
    with null.batch(cap=2) as batch:
        kept, dropped, waiting = opened(batch, 3)
        for _ in range(5):
            batch.turn()
        rows = [weakref.ref(dropped.row), weakref.ref(waiting.row)]
        gc.disable()
        try:
            del dropped, waiting
            assert [row() for row in rows] == [None, None]
        finally:
            gc.enable()
        assert len(batch.queue.running) == 1
        assert kept.run().tokens == alone(null, 0).tokens


def test_a_cycle_that_is_collected_within_a_unit_of_work_is_freed_after_it(null: Model) -> None:
    with null.batch(cap=4) as batch:
        held = opened(batch, 1, taps=Taps(call=collect))
        for _ in range(2):
            make_cycles(opened(batch, 3))
            held[0].step()
        batch.run()
        assert batch.sessions() == []
        assert len(batch.queue.waiting) + len(batch.queue.running) == 0
    assert held[0].tokens == alone(null, 0).tokens


def collect(step: Step) -> None:
    gc.collect()


def make_cycles(sessions: list[BatchedSession]) -> None:
    for session in sessions:
        session.itself = session  # type: ignore[attr-defined]


def failing_at(count: int) -> tuple[Callable[[Step], None], list[Step]]:
    seen = list[Step]()

    def call(step: Step) -> None:
        seen.append(step)
        if len(seen) == count:
            raise ZeroDivisionError("of a tap")

    return call, seen


def test_what_a_tap_raises_is_raised_to_the_reader_of_its_session_in_its_place(null: Model) -> None:
    call, seen = failing_at(3)
    with null.batch() as batch:
        (tapped,) = opened(batch, 1, taps=Taps(call=call))
        (other,) = opened(batch, 1)
        other.run()
        # Held back where it raised, so that nothing is lost of what comes after.
        assert (len(seen), tapped.unread, tapped.state) == (3, 2, State.RUNNING)
        assert [tapped.step() is not None for _ in range(2)] == [True, True]
        with pytest.raises(ZeroDivisionError, match="of a tap"):
            tapped.step()
        rest = list(tapped.steps())
    assert len(rest) == 9
    assert tapped.tokens == alone(null, 0).tokens
    assert other.tokens == alone(null, 0).tokens


def test_reading_all_passes_over_a_session_whose_tap_raised(null: Model) -> None:
    call, _ = failing_at(3)
    with null.batch() as batch:
        (tapped,) = opened(batch, 1, taps=Taps(call=call))
        (other,) = opened(batch, 1)
        completions = batch.run()
        assert [len(c.tokens) for c in completions] == [3, 12]
        with pytest.raises(ZeroDivisionError, match="of a tap"):
            tapped.run()
        assert tapped.run().tokens == other.tokens


@pytest.mark.parametrize("within", ["step", "turn", "fork", "rewind", "save"])
def test_turning_a_batch_from_within_a_unit_is_refused(null: Model, within: str, tmp_path: Any) -> None:
    errors = list[str]()
    with null.batch() as batch:
        (other,) = opened(batch, 1)
        other.step()
        other.step()

        def call(step: Step) -> None:
            if other.finished:
                return
            try:
                if within == "turn":
                    batch.turn()
                elif within == "step":
                    while other.step():
                        pass
                elif within == "save":
                    other.save(tmp_path / "s")
                else:
                    getattr(other, within)(*([1] if within == "rewind" else []))
            except SessionFailed as error:
                errors.append(str(error))

        (tapped,) = opened(batch, 1, taps=Taps(call=call))
        batch.run()
    assert errors
    assert all("between two units of work was needed" in error for error in errors)
    assert (tapped.tokens, other.tokens) == (alone(null, 0).tokens,) * 2


def test_a_tap_may_open_cancel_and_close(null: Model) -> None:
    opened_within = list[BatchedSession]()
    with null.batch(cap=2) as batch:
        (other,) = opened(batch, 1)

        def call(step: Step) -> None:
            if not opened_within:
                opened_within.append(batch.session("b", max_tokens=3, stop_tokens=()))
                other.cancel()

        (tapped,) = opened(batch, 1, taps=Taps(call=call))
        batch.run()
        assert (other.state, tapped.state) == (State.CANCELLED, State.COMPLETED)
        assert len(opened_within[0].tokens) == 3
        (closing,) = opened(batch, 1, taps=Taps(call=lambda step: batch.close()))
        assert closing.run().finish_reason == "cancelled"


def test_ctrl_c_in_a_turn_comes_after_it_and_loses_nothing(null: Model) -> None:
    def interrupt(step: Step) -> None:
        signal.raise_signal(signal.SIGINT)

    with null.batch() as batch:
        first, tapped = opened(batch, 1) + opened(batch, 1, taps=Taps(call=interrupt))
        interrupted = 0
        while not (first.finished and tapped.finished):
            try:
                batch.turn()
            except KeyboardInterrupt:
                interrupted += 1
        steps = [list(session.steps()) for session in (first, tapped)]
    assert interrupted == 12
    assert [len(made) for made in steps] == [12, 12]
    assert (first.tokens, tapped.tokens) == (alone(null, 0).tokens,) * 2
