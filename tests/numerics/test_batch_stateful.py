"""1,000 random sequences of what can be done to sessions of a batch, against serial sessions from scratch.

The reference of a session is its request run alone: for a branch, with the tokens of its trunk given and the
rest drawn under its own seed and sampling. Tokens and log-probabilities are equal bit for bit.
"""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import hypothesis
import mlx.core as mx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from labkit.core.errors import SessionFailed
from labkit.core.sampling import Sampling
from labkit.core.step import Step
from labkit.engine.batching import batch as batching
from labkit.engine.batching.row import Place, Row
from labkit.engine.batching.session import BatchedSession
from labkit.engine.model import Model
from labkit.engine.session import State
from tests.numerics.batch_rows import prompt_of
from tests.numerics.tiny_models import GEMMA3, LLAMA, MAMBA, tiny_model

MAX_TOKENS = 10
PENALIZED = Sampling(temperature=1.0, top_p=0.9, repetition_penalty=1.3)
SAMPLINGS = (PENALIZED, Sampling(temperature=1.0), Sampling())
# Prompts leave the window of 12 open and most completions pass it.
MODELS = {
    "llama": ({**LLAMA, "num_hidden_layers": 1}, "bf16"),
    "gemma3": (
        {**GEMMA3, "num_hidden_layers": 2, "sliding_window_pattern": 2, "sliding_window": 12},
        "affine:8",
    ),
    "mamba": ({**MAMBA, "num_hidden_layers": 1}, "bf16"),
}
# So few unread steps, so that sessions are held back.
MOST_UNREAD, FEW_UNREAD = 5, 2


@cache
def model_of(name: str) -> Model:
    return tiny_model(MODELS[name][0], mx.bfloat16)


def options_of(name: str, sampling: Sampling, seed: int) -> dict[str, Any]:
    kv = MODELS[name][1]
    return {"kv": kv, "sampling": sampling, "seed": seed, "prefill_chunk": 4, "logprobs": True}


@cache
def path(
    name: str, length: int, sampling: Sampling, seed: int, given: tuple[int, ...] = ()
) -> tuple[tuple[int, ...], list[Any]]:
    """All tokens and log-probabilities of a serial session whose first tokens are given."""
    how = options_of(name, sampling, seed)
    session = model_of(name).session(prompt_of(length), max_tokens=MAX_TOKENS, stop_tokens=(), **how)
    session.prepare()
    execution: Any = session._execution
    execution.give(given)
    steps = [step for step in session.steps() if step.tokens]
    return session.tokens, [step.logprobs for step in steps]


@dataclass
class Held:
    """A session and what it should be. origin: the arguments of its path. read: tokens that were read."""

    session: BatchedSession
    origin: tuple[Any, ...]
    max_tokens: int
    stop: int | None
    read: int = 0
    ended: State | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        """Everything that it should commit, unless it is cancelled."""
        found = path(*self.origin)[0][: self.max_tokens]
        return found[: found.index(self.stop) + 1] if self.stop in found else found

    def take(self, step: Step) -> None:
        """Check a decode step that was read."""
        index = step.position - self.origin[1] - 1
        assert index == self.read
        assert step.tokens == (self.tokens[index],)
        assert mx.array_equal(step.logprobs, path(*self.origin)[1][index])
        self.read += 1


class Batching(RuleBasedStateMachine):
    """Subclasses name the model."""

    NAME = ""
    COUNTS: ClassVar[Counter[str]] = Counter()

    @initialize(
        cap=st.integers(2, 4),
        policy=st.sampled_from(["fcfs", "prefill-first", "fair"]),
        rows=st.integers(1, 3),
        ahead=st.integers(0, 12),
    )
    def open(self, cap: int, policy: str, rows: int, ahead: int) -> None:
        self.batch = model_of(self.NAME).batch(cap=cap, policy=policy)
        self.held: list[Held] = []
        for index in range(rows):
            self.join(1 + 3 * index, SAMPLINGS[index], index, MAX_TOKENS, None)
        self.turn(ahead)

    @precondition(lambda self: len(self.held) < 6)
    @rule(
        length=st.sampled_from([1, 2, 5, 7]),
        sampling=st.sampled_from(SAMPLINGS),
        seed=st.integers(0, 2),
        max_tokens=st.sampled_from([MAX_TOKENS, 6]),
        stop_at=st.none() | st.integers(3, 8),
    )
    def join(self, length: int, sampling: Sampling, seed: int, max_tokens: int, stop_at: int | None) -> None:
        origin = (self.NAME, length, sampling, seed)
        stop = None if stop_at is None else path(*origin)[0][stop_at]
        session = self.batch.session(
            prompt_of(length),
            max_tokens=max_tokens,
            stop_tokens=() if stop is None else (stop,),
            **options_of(self.NAME, sampling, seed),
        )
        self.COUNTS["joins midway"] += len(self.batch.queue.decoding) > 0
        self.held.append(Held(session, origin, max_tokens, stop))

    @rule(count=st.integers(1, 12))
    def turn(self, count: int) -> None:
        for _ in range(count):
            self.COUNTS["steps of several rows"] += len(self.batch.queue.decoding) > 1
            self.batch.turn()

    @precondition(lambda self: self.held)
    @rule(index=st.integers(0, 5), count=st.integers(1, 6))
    def read(self, index: int, count: int) -> None:
        held = self.pick(index)
        row = held.session.row
        parked = row is not None and row.place is Place.PARKED
        for _ in range(count):
            step = held.session.step()
            if step is None:
                assert held.session.finished
                return
            if step.tokens:
                held.take(step)
        self.COUNTS["held back and read"] += parked

    @precondition(lambda self: self.held)
    @rule(dice=st.integers(0, 5))
    def read_all(self, dice: int) -> None:
        if dice != 5:  # else most sequences would end early
            return
        by_name = {held.session.name: held for held in self.held}
        for session, step in self.batch.steps():
            if step.tokens:
                by_name[session.name].take(step)
        for held in self.held:
            assert held.session.finished
            assert held.ended is not None or held.session.tokens == held.tokens
        self.COUNTS["read to the end"] += 1

    @precondition(lambda self: 0 < len(self.held) < 6)
    @rule(
        index=st.integers(0, 5),
        seed=st.none() | st.integers(0, 2),
        sampling=st.none() | st.sampled_from(SAMPLINGS),
        max_tokens=st.none() | st.sampled_from([MAX_TOKENS, 6]),
    )
    def fork(self, index: int, seed: int | None, sampling: Sampling | None, max_tokens: int | None) -> None:
        held = self.pick(index)
        asked = {"seed": seed, "sampling": sampling, "max_tokens": max_tokens}
        changes: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
        count, most = len(held.session.tokens), max_tokens or held.max_tokens
        if held.session.finished or count >= most:
            with pytest.raises(SessionFailed):
                held.session.fork(**changes)
            return
        branch, given = held.session.fork(**changes), held.session.tokens
        name, length, before, drawn, *_ = held.origin
        origin = held.origin
        if seed is not None or sampling is not None:
            origin = (name, length, sampling or before, drawn if seed is None else seed, given)
        self.COUNTS["forks after a token"] += count > 0
        self.held.append(replace(held, session=branch, origin=origin, max_tokens=most, read=count))

    @precondition(lambda self: self.held)
    @rule(index=st.integers(0, 5), count=st.integers(1, 7), replay=st.booleans())
    def rewind(self, index: int, count: int, replay: bool) -> None:
        held = self.pick(index)
        before = held.session.tokens
        if held.session.finished or count > len(before):
            with pytest.raises(SessionFailed):
                held.session.rewind(count, replay=replay)
            return
        self.COUNTS["rewinds asked for"] += 1
        try:
            held.session.rewind(count, replay=replay)
        except SessionFailed as refused:
            self.expect_replay_needed(str(refused), replay)
            assert held.session.tokens == before
            return
        assert held.session.tokens == before[: len(before) - count]
        keep = len(held.session.tokens)
        held.read = min(held.read, keep)
        # What a branch draws anew it draws by itself, where its trunk had drawn it too.
        held.origin = (*held.origin[:4], *(given[:keep] for given in held.origin[4:]))

    def expect_replay_needed(self, said: str, replay: bool) -> None:
        assert "replay=True" in said
        assert not replay
        assert self.NAME != "llama"

    @precondition(lambda self: self.held)
    @rule(index=st.integers(0, 5), dice=st.integers(0, 3))
    def cancel(self, index: int, dice: int) -> None:
        if dice != 3:
            return
        held = self.pick(index)
        if not held.session.finished:
            self.COUNTS["cancels"] += 1
            held.ended = State.CANCELLED
        held.session.cancel()

    @precondition(lambda self: len(self.held) > 3)
    @rule(index=st.integers(0, 5), drop=st.booleans())
    def close_or_drop(self, index: int, drop: bool) -> None:
        held = self.pick(index)
        self.COUNTS["leaves midway"] += not held.session.finished
        if not drop:
            held.session.close()
        self.held.remove(held)

    @invariant()
    def every_session_is_what_it_should_be(self) -> None:
        for held in getattr(self, "held", []):
            tokens, whole = held.session.tokens, held.tokens
            assert tokens == whole[: len(tokens)]
            assert held.session.unread <= MOST_UNREAD
            if held.ended is not None:
                assert held.session.state is held.ended
            elif held.session.finished:
                assert (held.session.state, tokens) == (State.COMPLETED, whole)
            else:
                assert len(tokens) < len(whole)

    def pick(self, index: int) -> Held:
        return self.held[index % len(self.held)]

    def teardown(self) -> None:
        if hasattr(self, "batch"):
            self.batch.close()
            assert not list(self.batch._loop.rows())


# How often each must have happened in a hundred sequences: else they would show little.
LEAST = {
    "steps of several rows": 150,
    "joins midway": 8,
    "forks after a token": 20,
    "held back and read": 10,
    "rewinds asked for": 8,
    "cancels": 3,
    "leaves midway": 3,
    "read to the end": 4,
}
BLOCKS = {"llama": 4, "gemma3": 3, "mamba": 3}


@pytest.mark.parametrize(
    ("name", "block"), [(name, i) for name, count in BLOCKS.items() for i in range(count)]
)
def test_a_hundred_random_sequences(name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "MOST_UNREAD", MOST_UNREAD)
    monkeypatch.setattr(batching, "FEW_UNREAD", FEW_UNREAD)
    counts = Counter[str]()
    machine = type(f"Batching{name.title()}", (Batching,), {"NAME": name, "COUNTS": counts})
    run_state_machine_as_test(
        hypothesis.seed(10 * list(BLOCKS).index(name) + block)(machine),
        settings=settings(
            max_examples=100,
            stateful_step_count=20,
            deadline=None,
            database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
    gc.collect()
    assert not [one for one in gc.get_objects() if type(one) is Row]
    assert {what: counts[what] for what, least in LEAST.items() if counts[what] < least} == {}, counts
