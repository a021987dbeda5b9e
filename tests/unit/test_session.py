"""Sessions on the null model: life, stop tokens, failures. No mlx model is loaded."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from labkit.core.errors import PlanRefused, SessionFailed
from labkit.core.step import Step
from labkit.engine.session import Session, State
from labkit.model.null import parse_null
from tests.unit.null_session import null_session, scripted_session


def test_a_null_session_prefills_in_chunks_and_decodes() -> None:
    session = null_session("hello world", max_tokens=4, prefill_chunk=4)
    steps = list(session.steps())
    assert [s.kind for s in steps] == ["prefill"] * 3 + ["decode"] * 4
    assert [s.position for s in steps] == [4, 8, 10, 12, 13, 14, 15]
    assert session.state is State.COMPLETED
    assert session.finish_reason == "length"
    assert len(session.tokens) == 4
    assert session.kv_bytes == 15 * parse_null("null").kv_bytes_per_token


def test_it_is_deterministic_and_keeps_its_own_time() -> None:
    spec = "null:prefill_tps=1000,decode_tps=100"
    first, second = (null_session("abc", spec=spec, max_tokens=3) for _ in range(2))
    assert first.run().tokens == second.run().tokens
    seconds = [s.seconds for s in null_session("abc", spec=spec, max_tokens=3).steps()]
    assert seconds == pytest.approx([0.002, 0.01, 0.01, 0.01])


def test_a_stop_token_ends_it_and_is_not_in_the_text() -> None:
    tokens = null_session("abc", max_tokens=8).run().tokens
    stop = tokens[2]
    done = null_session("abc", max_tokens=8, stop_tokens=(stop,)).run()
    assert done.finish_reason == "stop"
    assert done.tokens == tokens[: tokens.index(stop) + 1]
    assert done.text == bytes(done.tokens[:-1]).decode()


def test_run_until_can_go_on() -> None:
    session = null_session("abc", max_tokens=5)
    part = session.run(until=lambda step: step.kind == "decode")
    assert len(part.tokens) == 1
    assert part.finish_reason is None
    assert len(session.run().tokens) == 5


def test_cancel_keeps_what_was_committed_and_close_is_idempotent() -> None:
    session = null_session("abc", max_tokens=5)
    session.step()
    session.step()
    session.cancel()
    session.cancel()
    session.close()
    assert (session.state, session.finish_reason) == (State.CANCELLED, "cancelled")
    assert len(session.tokens) == 1
    assert session.step() is None


def test_a_closed_session_says_so() -> None:
    session = null_session("abc", max_tokens=5)
    with session:
        session.step()
    with pytest.raises(SessionFailed, match="an open session was needed"):
        session.step()


def test_bad_requests_are_refused_before_anything_runs() -> None:
    with pytest.raises(PlanRefused, match="an empty prompt"):
        null_session("", max_tokens=5)


def interrupting(model_session: Session, at_step: int) -> None:
    """SIGINT arrives while step `at_step` is at work."""
    model_session.prepare()
    execution: Any = model_session._execution
    advance, count = execution.advance, iter(range(99))

    def advance_and_interrupt() -> Step | None:
        step = advance()
        if next(count) == at_step:
            signal.raise_signal(signal.SIGINT)
        return step

    execution.advance = advance_and_interrupt


@pytest.mark.parametrize("at_step", [0, 2, 3])
def test_ctrl_c_comes_after_the_step_and_the_session_goes_on(at_step: int) -> None:
    expected = null_session("hello", max_tokens=4, prefill_chunk=2).run().tokens
    session = null_session("hello", max_tokens=4, prefill_chunk=2)
    interrupting(session, at_step)
    with pytest.raises(KeyboardInterrupt):
        session.run()
    assert session.run().tokens == expected


class Broken:
    """An execution that commits one token and then fails."""

    def __init__(self) -> None:
        self.closed = 0
        self._steps = [Step("decode", (65,), None, 0.1, 0, 1, 1)]

    def advance(self) -> Step:
        return self._steps.pop()

    def verify(self) -> None:
        raise SessionFailed("caches as planned", got="others")

    def close(self) -> None:
        self.closed += 1


def test_a_failure_keeps_what_was_committed_and_frees_state() -> None:
    execution = Broken()
    session = scripted_session(execution, max_tokens=5)
    session.step()
    with pytest.raises(IndexError):
        session.step()
    session.close()
    assert (session.state, session.tokens, execution.closed) == (State.FAILED, (65,), 1)


def test_caches_that_are_not_as_planned_fail_the_session() -> None:
    session = scripted_session(Broken(), max_tokens=1)
    with pytest.raises(SessionFailed, match="caches as planned"):
        session.step()
    assert session.state is State.FAILED
