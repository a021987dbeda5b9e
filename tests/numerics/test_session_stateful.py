"""1,400 random sequences of step, fork, rewind, snapshot, save, resume, cancel and close against a reference.

The reference is a run from scratch: mlx-lm's caches, the prompt in the same chunks, then every token fed by
itself and mlx-lm's own processors over its logits; a token is the draw from that with the branch's seed.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

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
from mlx_lm.sample_utils import make_logits_processors

import labkit
from labkit.core.errors import SessionFailed
from labkit.core.sampling import Sampling
from labkit.engine.model import Model
from labkit.engine.sampling import draw
from labkit.engine.session import Session, State
from tests.numerics.tiny_models import GEMMA3, LLAMA, MAMBA, tiny_model

MAX_TOKENS = 10
CHUNK = 4
PENALTIES: dict[str, Any] = {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.2}
# With processors and without: a branch may go from one to the other.
SAMPLINGS = (Sampling(temperature=1.0, top_p=0.9, **PENALTIES), Sampling(temperature=1.0, top_p=0.9))
# The prompt leaves the window open and the completion passes it.
WINDOW = 12
SLIDING = {**GEMMA3, "num_hidden_layers": 3, "sliding_window": WINDOW}
# While decoding, or within the longest prompt, a ring and a full cache are quantized.
START = 6
MODELS: dict[str, tuple[dict[str, Any], str]] = {
    "llama": (LLAMA, "bf16"),
    "gemma3": (SLIDING, "bf16"),
    "mamba": (MAMBA, "bf16"),
    "codes": (SLIDING, f"affine:4/g32/s16/start{START}"),
}


@cache
def model_of(name: str) -> Model:
    return tiny_model(MODELS[name][0])


@dataclass(frozen=True)
class Scratch:
    """Logits of the token after a prefix of the completion, computed from nothing."""

    model: Model
    kv: str
    prompt: tuple[int, ...]
    known: dict[tuple[int, ...], mx.array] = field(default_factory=dict)

    def logprobs(self, prefix: tuple[int, ...], sampling: Sampling) -> mx.array:
        if prefix not in self.known:
            self._compute(prefix)
        logits = mx.array(self.known[prefix])
        for process in make_logits_processors(**PENALTIES) if sampling.processes else []:
            logits = process(mx.array((*self.prompt, *prefix)), logits)
        return (logits - mx.logsumexp(logits, keepdims=True)).squeeze(0)

    def token(self, prefix: tuple[int, ...], sampling: Sampling, seed: int) -> int:
        return int(draw(self.logprobs(prefix, sampling), sampling, seed, len(prefix)).item())  # type: ignore[arg-type]

    def _compute(self, prefix: tuple[int, ...]) -> None:
        caches = make_prompt_cache(self.model.graph)
        scheme = self.model.engine.scheme(self.model.resolve(self.model.request([1], kv=self.kv)))
        rest = list(self.prompt)
        while len(rest) > 1:
            size = min(CHUNK, len(rest) - 1)
            self.model.graph(mx.array([rest[:size]]), cache=caches)
            scheme.settle(caches)
            mx.eval([c.state for c in caches])
            rest = rest[size:]
        for at in range(len(prefix) + 1):
            fed = rest[0] if at == 0 else prefix[at - 1]
            logits = self.model.graph(mx.array([[fed]]), cache=caches)[:, -1, :]
            scheme.settle(caches)
            mx.eval(logits)
            self.known.setdefault(prefix[:at], logits)


@cache
def scratch_of(name: str, length: int) -> Scratch:
    model = model_of(name)
    source = random.Random(length)
    return Scratch(
        model, MODELS[name][1], tuple(source.randrange(model.profile.vocab_size) for _ in range(length))
    )


@dataclass
class Held:
    """A session and what it should be."""

    session: Session
    seed: int
    sampling: Sampling
    tokens: list[int] = field(default_factory=list)
    ended: State | None = None


class Holding(RuleBasedStateMachine):
    """Subclasses name the model."""

    NAME = ""
    COUNTS: ClassVar[Counter[str]] = Counter()

    @initialize(length=st.sampled_from([1, 2, 5, 7]), seed=st.integers(0, 3), ahead=st.integers(0, 7))
    def open(self, length: int, seed: int, ahead: int) -> None:
        self.scratch = scratch_of(self.NAME, length)
        session = self.scratch.model.session(
            self.scratch.prompt,
            kv=self.scratch.kv,
            max_tokens=MAX_TOKENS,
            prefill_chunk=CHUNK,
            seed=seed,
            sampling=SAMPLINGS[0],
            logprobs=True,
            stop_tokens=(),
        )
        self.held = [Held(session, seed, SAMPLINGS[0])]
        while len(self.held[0].tokens) < ahead:
            self.step(0, 1)

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
        assert tokens == (self.scratch.token(prefix, held.sampling, held.seed),)
        assert mx.array_equal(logprobs[0], self.scratch.logprobs(prefix, held.sampling))
        held.tokens.append(tokens[0])
        if len(held.tokens) == MAX_TOKENS:
            held.ended = State.COMPLETED

    @precondition(lambda self: len(self.held) < 5)
    @rule(
        index=st.integers(0, 4),
        seed=st.none() | st.integers(0, 3),
        sampling=st.none() | st.sampled_from(SAMPLINGS),
    )
    def fork(self, index: int, seed: int | None, sampling: Sampling | None) -> None:
        held = self.pick(index)
        asked = {"seed": seed, "sampling": sampling}
        changes = {name: value for name, value in asked.items() if value is not None}
        if held.ended is not None:
            with pytest.raises(SessionFailed, match="has not ended was needed to fork"):
                held.session.fork(**changes)
            return
        self.COUNTS["forks after a token"] += bool(held.tokens)
        branch = held.session.fork(**changes)
        drawn = (held.seed if seed is None else seed, sampling or held.sampling)
        self.held.append(Held(branch, *drawn, list(held.tokens)))

    @rule(index=st.integers(0, 4))
    def snapshot(self, index: int) -> None:
        held = self.pick(index)
        if held.ended is None:
            held.session.snapshot()

    @rule(index=st.integers(0, 4), gap=st.integers(1, 3), count=st.integers(1, 5))
    def snapshot_twice_and_come_back(self, index: int, gap: int, count: int) -> None:
        """Two snapshots, and a rewind that lands before, between or after them."""
        if len(self.pick(index).tokens) < count:
            return
        self.snapshot(index)
        self.step(index, gap)
        self.snapshot(index)
        self.step(index, 1)
        self.rewind(index, count, replay=True)
        self.step(index, 2)

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
        self.count_rewind(held, count)
        held.session.rewind(count, replay=replay)
        held.tokens = held.tokens[: len(held.tokens) - count]

    def count_rewind(self, held: Held, count: int) -> None:
        snapshots = [at for at in held.session._snapshots if at <= len(held.tokens) - count]
        if self.gives_back(held, count):
            self.COUNTS["rewinds in place"] += bool(count)
        else:
            self.COUNTS["replays"] += 1
            self.COUNTS["replays from a snapshot"] += bool(snapshots)
            self.COUNTS["a choice among snapshots"] += len(snapshots) > 1

    def gives_back(self, held: Held, count: int) -> bool:
        """Whether the caches can: plain ones always, a window until it is passed, a recurrent state never.

        Codes do not become numbers again: not to where they were not quantized yet.
        """
        prompt = len(self.scratch.prompt)
        if count == 0 or (prompt == 1 and count == len(held.tokens)):
            return True
        # One forward more than tokens are committed has been queued.
        within = prompt + len(held.tokens) < WINDOW
        execution: Any = held.session._execution
        undone = prompt - 1 + len(held.tokens) - count < START <= execution._length
        return {"llama": True, "gemma3": within, "mamba": False, "codes": within and not undone}[self.NAME]

    @rule(index=st.integers(0, 4))
    def save_and_resume(self, index: int) -> None:
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

    @rule(index=st.integers(0, 4), dice=st.integers(0, 5))
    def cancel(self, index: int, dice: int) -> None:
        if dice != 5:  # else most sequences would end early
            return
        held = self.pick(index)
        held.session.cancel()
        held.ended = held.ended or State.CANCELLED

    @precondition(lambda self: len(self.held) > 3)
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


# How often each must have happened at least: a generator that hardly ever did these would show nothing.
LEAST: dict[str, dict[str, int]] = {
    "llama": {"rewinds in place": 200, "forks after a token": 200},
    "gemma3": {"rewinds in place": 200, "replays": 50, "replays from a snapshot": 25},
    "codes": {"rewinds in place": 50, "replays": 50, "replays from a snapshot": 25},
    "mamba": {"replays from a snapshot": 50, "a choice among snapshots": 20, "forks after a token": 100},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sequences"), [("llama", 400), ("gemma3", 400), ("mamba", 300), ("codes", 300)]
)
def test_random_sequences(name: str, sequences: int) -> None:
    counts = Counter[str]()
    machine = type(f"Holding{name.title()}", (Holding,), {"NAME": name, "COUNTS": counts})
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
    assert {what: counts[what] for what, least in LEAST[name].items() if counts[what] < least} == {}, counts
