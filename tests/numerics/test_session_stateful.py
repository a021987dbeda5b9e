"""1,000 random sequences of step, fork, rewind, snapshot, save, resume, cancel and close against a reference.

The reference is a run from scratch: mlx-lm's caches, the prompt in the same chunks, then every token fed by
itself; a token is the draw from its log-probabilities with the branch's seed.
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

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
from mlx_lm.models.cache import make_prompt_cache

import labkit
from labkit.core.errors import SessionFailed
from labkit.core.sampling import Sampling
from labkit.engine.model import Model
from labkit.engine.sampling import draw
from labkit.engine.session import Session, State
from tests.numerics.tiny_models import GEMMA3, LLAMA, MAMBA, tiny_model

MAX_TOKENS = 10
CHUNK = 4
SAMPLING = Sampling(temperature=1.0, top_p=0.9)
# The prompt leaves the window open and the completion passes it.
WINDOW = 12
SLIDING = {**GEMMA3, "num_hidden_layers": 3, "sliding_window": WINDOW}


@cache
def model_of(name: str) -> Model:
    return tiny_model({"llama": LLAMA, "gemma3": SLIDING, "mamba": MAMBA}[name])


@dataclass(frozen=True)
class Scratch:
    """Log-probabilities of the token after a prefix of the completion, computed from nothing."""

    model: Model
    prompt: tuple[int, ...]
    known: dict[tuple[int, ...], mx.array] = field(default_factory=dict)

    def logprobs(self, prefix: tuple[int, ...]) -> mx.array:
        if prefix not in self.known:
            self._compute(prefix)
        return self.known[prefix]

    def token(self, prefix: tuple[int, ...], seed: int) -> int:
        return int(draw(self.logprobs(prefix), SAMPLING, seed, len(prefix)).item())  # type: ignore[arg-type]

    def _compute(self, prefix: tuple[int, ...]) -> None:
        caches = make_prompt_cache(self.model.graph)
        rest = list(self.prompt)
        while len(rest) > 1:
            size = min(CHUNK, len(rest) - 1)
            self.model.graph(mx.array([rest[:size]]), cache=caches)
            mx.eval([c.state for c in caches])
            rest = rest[size:]
        for at in range(len(prefix) + 1):
            fed = rest[0] if at == 0 else prefix[at - 1]
            logits = self.model.graph(mx.array([[fed]]), cache=caches)[:, -1, :]
            found = (logits - mx.logsumexp(logits, keepdims=True)).squeeze(0)
            mx.eval(found)
            self.known.setdefault(prefix[:at], found)


@cache
def scratch_of(name: str, length: int) -> Scratch:
    model = model_of(name)
    source = random.Random(length)
    return Scratch(model, tuple(source.randrange(model.profile.vocab_size) for _ in range(length)))


@dataclass
class Held:
    """A session and what it should be."""

    session: Session
    seed: int
    tokens: list[int] = field(default_factory=list)
    ended: State | None = None


class Holding(RuleBasedStateMachine):
    """Subclasses name the model."""

    NAME = ""

    @initialize(length=st.sampled_from([1, 2, 5, 7]), seed=st.integers(0, 3))
    def open(self, length: int, seed: int) -> None:
        self.scratch = scratch_of(self.NAME, length)
        session = self.scratch.model.session(
            self.scratch.prompt,
            max_tokens=MAX_TOKENS,
            prefill_chunk=CHUNK,
            seed=seed,
            sampling=SAMPLING,
            logprobs=True,
            stop_tokens=(),
        )
        self.held = [Held(session, seed)]

    @rule(index=st.integers(0, 4), count=st.integers(1, 4))
    def step(self, index: int, count: int) -> None:
        held = self.pick(index)
        for _ in range(count):
            step = held.session.step()
            if step is None:
                assert held.ended is not None
                return
            assert held.ended is None
            if step.kind == "decode":
                self.expect(held, step.tokens, step.logprobs)

    def expect(self, held: Held, tokens: tuple[int, ...], logprobs: mx.array) -> None:
        prefix = tuple(held.tokens)
        assert tokens == (self.scratch.token(prefix, held.seed),)
        assert mx.array_equal(logprobs[0], self.scratch.logprobs(prefix))
        held.tokens.append(tokens[0])
        if len(held.tokens) == MAX_TOKENS:
            held.ended = State.COMPLETED

    @precondition(lambda self: len(self.held) < 5)
    @rule(index=st.integers(0, 4), seed=st.none() | st.integers(0, 3))
    def fork(self, index: int, seed: int | None) -> None:
        held = self.pick(index)
        changes = {} if seed is None else {"seed": seed}
        if held.ended is not None:
            with pytest.raises(SessionFailed, match="has not ended was needed to fork"):
                held.session.fork(**changes)
            return
        branch = held.session.fork(**changes)
        self.held.append(Held(branch, held.seed if seed is None else seed, list(held.tokens)))

    @rule(index=st.integers(0, 4))
    def snapshot(self, index: int) -> None:
        held = self.pick(index)
        if held.ended is None:
            held.session.snapshot()

    @rule(index=st.integers(0, 4), count=st.integers(0, 6), replay=st.booleans())
    def rewind(self, index: int, count: int, replay: bool) -> None:
        held = self.pick(index)
        if held.ended is not None or count > len(held.tokens):
            with pytest.raises(SessionFailed):
                held.session.rewind(count, replay=replay)
            return
        if not replay and not self.gives_back(held, count):
            with pytest.raises(SessionFailed, match="replay=True"):
                held.session.rewind(count)
            return
        held.session.rewind(count, replay=replay)
        held.tokens = held.tokens[: len(held.tokens) - count]

    def gives_back(self, held: Held, count: int) -> bool:
        """Whether the caches can: plain ones always, a window until it is passed, a recurrent state never."""
        prompt = len(self.scratch.prompt)
        if count == 0 or (prompt == 1 and count == len(held.tokens)):
            return True
        # One forward more than tokens are committed has been queued.
        return {"llama": True, "gemma3": prompt + len(held.tokens) < WINDOW, "mamba": False}[self.NAME]

    @rule(index=st.integers(0, 4), same_model=st.booleans())
    def save_and_resume(self, index: int, same_model: bool) -> None:
        held = self.pick(index)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "session"
            if held.ended is not None:
                with pytest.raises(SessionFailed, match="has not ended was needed to save"):
                    held.session.save(path)
                assert not list(Path(folder).iterdir())
                return
            held.session.save(path)
            assert [file.name for file in Path(folder).iterdir()] == ["session"]
            resumed = labkit.resume(path, model=self.scratch.model)
        assert resumed.state is held.session.state
        held.session.close()
        held.session = resumed

    @rule(index=st.integers(0, 4))
    def cancel(self, index: int) -> None:
        held = self.pick(index)
        held.session.cancel()
        held.ended = held.ended or State.CANCELLED

    @precondition(lambda self: len(self.held) > 1)
    @rule(index=st.integers(0, 4))
    def drop(self, index: int) -> None:
        held = self.pick(index)
        held.session.close()
        held.session.close()
        if held.ended is None:
            with pytest.raises(SessionFailed, match="an open session was needed"):
                held.session.step()
        self.held.remove(held)

    @invariant()
    def every_session_is_what_it_should_be(self) -> None:
        for held in getattr(self, "held", []):
            assert held.session.tokens == tuple(held.tokens)
            assert held.session.finished == (held.ended is not None)
            if held.ended is not None:
                assert held.session.state is held.ended

    def pick(self, index: int) -> Held:
        return self.held[index % len(self.held)]

    def teardown(self) -> None:
        for held in getattr(self, "held", []):
            held.session.close()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sequences"), [("llama", 400), ("gemma3", 400), ("mamba", 200)])
def test_random_sequences(name: str, sequences: int) -> None:
    machine = type(f"Holding{name.title()}", (Holding,), {"NAME": name})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=sequences,
            stateful_step_count=15,
            deadline=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
