"""The life of a session: every state takes a cancel, what raises leaves it whole, dropping it frees it."""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from labkit.core.errors import PlanRefused, SessionFailed
from labkit.core.step import Step, TopLogprobs
from labkit.core.taps import Taps
from labkit.engine.method import UNFINISHED, Unfinished
from labkit.engine.session import State
from labkit.plan.plan import Plan
from tests.unit.null_session import null_model_without_mlx, null_session, scripted_session


class Counting:
    """An execution that commits one token a step and runs `during` inside each unit of work."""

    def __init__(self, units: int = 1) -> None:
        self.closed = 0
        self.during: Callable[[], object] = lambda: None
        self.at_verify: Callable[[], object] = lambda: None
        self._units, self._done, self._count = units, 0, 0

    def advance(self) -> Step | Unfinished:
        self.during()
        self._done += 1
        if self._done % self._units:
            return UNFINISHED
        self._count += 1
        return Step("decode", (64 + self._count,), None, 0.1, 8, 1, self._count)

    def verify(self) -> None:
        self.at_verify()

    def close(self) -> None:
        self.closed += 1


def test_cancel_when_created() -> None:
    session = null_session("abc", max_tokens=5)
    assert session.state is State.CREATED
    session.cancel()
    assert (session.state, session.finish_reason, session.step()) == (State.CANCELLED, "cancelled", None)


def test_cancel_while_preparing() -> None:
    session = null_session("abc", max_tokens=5)
    host, seen = session._host, list[State]()

    def start(plan: Any, request: Any) -> Counting:
        seen.append(session.state)
        session.cancel()
        return execution

    execution = Counting()
    session._host = type("Host", (), {"start": staticmethod(start), "stream": host.stream})()  # type: ignore[assignment]
    assert session.step() is None
    assert (seen, session.state, execution.closed) == ([State.PREPARING], State.CANCELLED, 1)


def test_ctrl_c_while_preparing_comes_after_it_and_the_session_goes_on() -> None:
    session = null_session("abc", max_tokens=3)
    host = session._host
    start = host.start

    def interrupted(plan: Any, request: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return start(plan, request)

    stand_in = {"start": staticmethod(interrupted), "stream": host.stream}
    session._host = type("Host", (), stand_in)()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        session.step()
    assert session.state is State.QUEUED
    assert session.run().tokens == null_session("abc", max_tokens=3).run().tokens


def test_cancel_when_queued() -> None:
    execution = Counting()
    session = scripted_session(execution, max_tokens=5)
    session.prepare()
    assert session.state is State.QUEUED
    session.cancel()
    assert (session.state, execution.closed, session.tokens) == (State.CANCELLED, 1, ())


def test_cancel_from_within_a_step_keeps_what_the_step_commits() -> None:
    execution = Counting()
    session = scripted_session(execution, max_tokens=5)
    session.step()
    execution.during = session.cancel
    step = session.step()
    assert step is not None
    assert (step.tokens, session.tokens, session.state) == ((66,), (65, 66), State.CANCELLED)
    assert execution.closed == 1


def test_cancel_at_a_safe_point_within_a_step_ends_it_there() -> None:
    execution = Counting(units=4)
    session = scripted_session(execution, max_tokens=5)
    execution.during = session.cancel
    assert session.step() is None
    assert (session.state, session.tokens, execution.closed) == (State.CANCELLED, (), 1)


def test_cancel_while_settling() -> None:
    execution = Counting()
    session = scripted_session(execution, max_tokens=2)
    seen = []

    def cancel() -> None:
        seen.append(session.state)
        session.cancel()

    execution.at_verify = cancel
    done = session.run()
    assert (seen, session.state) == ([State.SETTLING], State.CANCELLED)
    assert (done.tokens, done.finish_reason, execution.closed) == ((65, 66), "cancelled", 1)


@pytest.mark.parametrize("ending", ["run", "cancel"])
def test_cancel_after_the_end_changes_nothing(ending: str) -> None:
    session = null_session("abc", max_tokens=2)
    getattr(session, ending)()
    before = (session.state, session.finish_reason, session.tokens)
    session.cancel()
    assert (session.state, session.finish_reason, session.tokens) == before


def test_cancel_from_another_thread() -> None:
    execution = Counting()
    session = scripted_session(execution, max_tokens=100)
    execution.during = lambda: threading.Thread(target=session.cancel).start() if session.tokens else None
    session.run()
    assert session.state is State.CANCELLED
    assert 1 < len(session.tokens) < 100


def test_another_thread_may_cancel_and_nothing_else() -> None:
    session = scripted_session(Counting(), max_tokens=5)
    session.step()
    said = []

    def elsewhere() -> None:
        for call in (session.step, session.fork, lambda: session.rewind(1), lambda: session.save("x")):
            with pytest.raises(SessionFailed, match="the thread that started the session"):
                call()
            said.append(call)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert len(said) == 4
    assert session.run().tokens == (65, 66, 67, 68, 69)


def test_an_error_in_a_tap_reaches_the_caller_and_the_session_goes_on() -> None:
    execution = Counting()
    session = scripted_session(execution, max_tokens=3)
    session.plan = _with_call(session.plan, lambda step: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        session.step()
    assert (session.tokens, session.state) == ((65,), State.RUNNING)
    session.plan = _with_call(session.plan, None)
    assert session.run().tokens == (65, 66, 67)


def test_an_error_in_a_predicate_reaches_the_caller_and_the_session_goes_on() -> None:
    session = scripted_session(Counting(), max_tokens=3)
    with pytest.raises(ZeroDivisionError):
        session.run(until=lambda step: bool(1 / 0))
    assert session.tokens == (65,)
    assert session.run().tokens == (65, 66, 67)


def test_a_call_from_within_a_step_is_refused() -> None:
    execution = Counting()
    session = scripted_session(execution, max_tokens=3)
    refused = []

    def step_again() -> None:
        with pytest.raises(SessionFailed, match="a call from within a step") as error:
            session.step()
        refused.append(error)

    execution.during = step_again
    session.step()
    assert len(refused) == 1
    assert session.tokens == (65,)


def test_close_from_within_a_step_frees_after_it() -> None:
    execution = Counting()
    session = scripted_session(execution, max_tokens=3)
    execution.during = session.close
    step = session.step()
    assert step is not None
    assert (session.tokens, execution.closed) == ((65,), 1)
    with pytest.raises(SessionFailed, match="an open session was needed"):
        session.step()


def test_closing_twice_frees_once() -> None:
    execution = Counting()
    session = scripted_session(execution, max_tokens=3)
    session.step()
    session.close()
    session.close()
    assert execution.closed == 1


def test_a_dropped_session_is_freed_at_once() -> None:
    execution = Counting()
    session = scripted_session(execution, max_tokens=9)
    steps = session.steps()
    next(steps)
    gone = weakref.ref(session)
    gc.disable()
    try:
        del session, steps
        assert gone() is None
    finally:
        gc.enable()


def test_a_consumer_that_never_reads_costs_nothing() -> None:
    execution = Counting()
    session = scripted_session(execution, max_tokens=9)
    steps = session.steps()
    assert (session.state, execution._count) == (State.CREATED, 0)
    next(steps)
    assert execution._count == 1


def test_ctrl_c_is_delivered_at_a_safe_point_within_a_step_which_then_goes_on() -> None:
    execution = Counting(units=4)
    session = scripted_session(execution, max_tokens=2)
    execution.during = lambda: signal.raise_signal(signal.SIGINT) if execution._done == 1 else None
    with pytest.raises(KeyboardInterrupt):
        session.step()
    assert (execution._done, session.tokens, session.state) == (2, (), State.RUNNING)
    assert session.run().tokens == (65, 66)
    assert execution._done == 8


class Wordy:
    """An execution that commits three tokens a step, with a row of log-probabilities each."""

    def __init__(self) -> None:
        self.at = 0

    def advance(self) -> Step:
        tokens = tuple(ord(c) for c in "abcdefghijkl"[self.at : self.at + 3])
        self.at += 3
        tops = tuple(TopLogprobs(token, -1.0, ((token, -1.0),)) for token in tokens)
        return Step("decode", tokens, [[t] for t in tokens], 0.1, 8, 1, 10 + self.at, top_logprobs=tops)

    def verify(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_step_is_cut_where_a_stop_string_ends() -> None:
    session = scripted_session(Wordy(), max_tokens=12, stop="de")
    first, second = session.step(), session.step()
    assert first is not None and second is not None
    assert (first.text, second.text, session.text) == ("abc", "", "abc")
    assert (second.tokens, second.logprobs) == ((100, 101), [[100], [101]])
    assert [top.token for top in second.top_logprobs] == [100, 101]
    assert (second.position, session.kv_bytes) == (15, 8)
    assert (session.finish_reason, session.stop_reason, session.run().stop_reason) == ("stop", "de", "de")


def test_a_stop_token_is_the_reason() -> None:
    model = scripted_session(Wordy(), max_tokens=12)._host
    done = model.session("a", max_tokens=12, stop_tokens=(ord("e"),)).run()  # type: ignore[attr-defined]
    assert (done.text, done.tokens[-1], done.stop_reason, done.finish_reason) == ("abcd", 101, 101, "stop")


def test_the_last_step_shows_what_was_held_back() -> None:
    session = scripted_session(Wordy(), max_tokens=6, stop=("fgh", "zz"))
    assert [step.text for step in session.steps()] == ["abc", "def"]
    assert (session.finish_reason, session.stop_reason) == ("length", None)
    held = scripted_session(Wordy(), max_tokens=9, stop=("fgh",))
    assert [step.text for step in held.steps()] == ["abc", "de", ""]
    assert (held.finish_reason, held.stop_reason) == ("stop", "fgh")


def test_a_branch_refuses_stops_that_its_text_holds_already() -> None:
    session = null_session("a", max_tokens=8)
    session.run(until=lambda step: len(session.tokens) == 4)
    for change in ({"stop": session.text[1:3]}, {"stop_tokens": session.tokens[1]}):
        with pytest.raises(SessionFailed, match="that goes on after what is committed"):
            session.fork(**change)
    assert session.fork(stop=("~~~",)).kv_bytes == session.kv_bytes > 0


def test_a_tokenizer_that_raises_frees_the_caches() -> None:
    execution = Counting()
    session = scripted_session(execution, max_tokens=5)

    class Broken:
        text, stopped = "", None

        def push(self, token: int) -> str:
            raise ValueError("no text")

        def finish(self) -> str:
            raise ValueError("no text")

    session._stream = Broken()  # type: ignore[assignment]
    with pytest.raises(ValueError, match="no text"):
        session.step()
    assert (session.state, execution.closed) == (State.FAILED, 1)


def test_a_cancelled_replay_ends_between_two_units() -> None:
    session = null_session("abcd", max_tokens=9)
    session.run(until=lambda step: len(session.tokens) == 5)
    whole = session.tokens
    execution: Any = session._execution
    execution.why_not_rewind = lambda count: "a test says so"
    start = type(session._host).start
    advanced = []

    def watched(plan: Any, request: Any) -> Any:
        run = start(session._host, plan, request)
        advance = run.advance

        def advance_and_cancel() -> Any:
            advanced.append(1)
            session.cancel()
            return advance()

        run.advance = advance_and_cancel
        return run

    object.__setattr__(session._host, "start", watched)
    with pytest.raises(SessionFailed, match="a replay of 4 tokens"):
        session.rewind(1, replay=True)
    assert (len(advanced), session.state, session.tokens) == (1, State.CANCELLED, whole)


@pytest.mark.parametrize(
    "options",
    [
        {"stop_tokens": 5.5},
        {"stop": 5},
        {"logits_processors": 7},
        {"method": [1]},
        {"sampling": 0},
        {"taps": 0},
        {"logprobs": "yes"},
    ],
    ids=str,
)
def test_wrong_options_are_refused_and_never_replaced(options: dict[str, Any]) -> None:
    with pytest.raises(PlanRefused, match=next(iter(options))):
        null_model_without_mlx().session("abc", **options)


def test_unknown_options_name_the_known_ones() -> None:
    model = null_model_without_mlx()
    with pytest.raises(PlanRefused, match=r"(?s)got: *max_token\n.*options: .*max_tokens"):
        model.session("abc", max_token=3)
    with pytest.raises(PlanRefused, match=r"sampling=labkit.Sampling\(temperature=...\)"):
        model.session("abc", temperature=0.7)


def test_a_method_without_branches_says_so() -> None:
    session = scripted_session(Counting(), max_tokens=3)
    session.plan = _without_features(session.plan)
    for call in (session.fork, session.snapshot, lambda: session.rewind(1)):
        with pytest.raises(SessionFailed, match=r"a method that can (fork|snapshot|rewind) was needed"):
            call()
    with pytest.raises(SessionFailed, match="a method that can save was needed"):
        session.save("nowhere")


def test_null_branches_go_on_as_the_whole_would() -> None:
    whole = null_session("abc", max_tokens=6).run().tokens
    session = null_session("abc", max_tokens=6)
    session.run(until=lambda step: len(session.tokens) == 3)
    branch = session.fork(max_tokens=4)
    session.rewind(2)
    assert session.tokens == whole[:1]
    assert session.run().tokens == whole
    assert (branch.tokens, branch.run().tokens) == (whole[:3], whole[:4])


@pytest.mark.parametrize("count", [-1, 4, 1.0, True, "1"])
def test_only_committed_tokens_can_be_taken_back(count: Any) -> None:
    session = null_session("abc", max_tokens=6)
    session.run(until=lambda step: len(session.tokens) == 3)
    with pytest.raises(SessionFailed, match="from 0 to 3 committed tokens"):
        session.rewind(count)
    assert len(session.tokens) == 3


def test_fork_refuses_what_a_branch_cannot_change() -> None:
    session = null_session("a", max_tokens=6)
    session.step()
    with pytest.raises(SessionFailed, match="changes of how the branch goes on"):
        session.fork(kv="affine:8")
    with pytest.raises(SessionFailed, match=r"got: *temprature"):
        session.fork(temprature=1)
    with pytest.raises(PlanRefused, match="seed"):
        session.fork(seed=-1)
    with pytest.raises(SessionFailed, match="that goes on after what is committed"):
        session.fork(max_tokens=1)


def test_text_comes_whole_and_stops_before_a_stop_string() -> None:
    tokens = null_session("abc", max_tokens=12).run().tokens
    text = bytes(tokens).decode()
    stop = text[5:8]
    session = null_session("abc", max_tokens=12, stop=stop)
    shown = "".join(step.text for step in session.steps())
    assert shown == session.text == text[: text.index(stop)]
    assert (session.finish_reason, session.stop_reason) == ("stop", stop)
    assert session.tokens == tokens[: text.index(stop) + 3]


def test_sessions_of_one_model_do_not_share_what_they_committed() -> None:
    model = null_model_without_mlx()
    first, second = (model.session("abc", max_tokens=4, stop_tokens=()) for _ in range(2))
    first.run()
    assert second.tokens == ()
    assert second.run().tokens == first.tokens


def _with_call(plan: Plan, call: Callable[[Step], Any] | None) -> Plan:
    return replace(plan, taps=Taps(call=call))


def _without_features(plan: Plan) -> Plan:
    return replace(plan, features=frozenset())
