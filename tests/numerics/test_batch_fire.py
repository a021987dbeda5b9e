"""A batch under fire: a row that is cancelled or raises goes alone, and the others are as without it."""

from __future__ import annotations

import signal
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import KVCache

from labkit.core.errors import SessionFailed
from labkit.core.kv_setting import KVSetting
from labkit.core.sampling import Sampling
from labkit.core.spec import KVSpec
from labkit.core.step import Step
from labkit.core.taps import Taps
from labkit.engine.batching.batch import MOST_UNREAD, Batch
from labkit.engine.batching.row import Place
from labkit.engine.batching.session import BatchedSession
from labkit.engine.chunk import Pace
from labkit.engine.model import Model
from labkit.engine.session import State
from labkit.schedule.policies import FirstCome
from labkit.schedule.policy import PolicyInvalid, PolicySpec
from labkit.schedule.queue import Queue
from tests.numerics.batch_rows import OPTIONS, alone, assert_same, decoded, opened, prompt_of, read_all
from tests.numerics.tiny_models import LLAMA, tiny_model

# Longer than what an unread session may have, so that one can be held back while the other goes on.
LONG = MOST_UNREAD + 40
VICTIM, BYSTANDER = prompt_of(40), prompt_of(23, salt=1)


@pytest.fixture(scope="module")
def llama() -> Model:
    return tiny_model(LLAMA, mx.bfloat16)


@pytest.fixture(scope="module")
def bystander(llama: Model) -> list[Step]:
    """What the session that nothing happens to decodes."""
    return alone(llama, BYSTANDER, max_tokens=LONG)


@pytest.fixture(scope="module")
def victim(llama: Model) -> list[Step]:
    """What the other one would have decoded."""
    return alone(llama, VICTIM, max_tokens=LONG)


def within_a_chunk(session: BatchedSession) -> bool:
    run: Any = session.row and session.row.run
    return run is not None and run._chunk is not None and bool(run._chunk.waiting)


def has_tokens(count: int) -> Callable[[BatchedSession], bool]:
    return lambda session: len(session.tokens) == count


PHASES: dict[str, Callable[[BatchedSession], bool]] = {
    "created": lambda session: session.state is State.CREATED,
    "queued": lambda session: session.state is State.QUEUED,
    "mid-chunk": within_a_chunk,
    "prefilling": lambda session: session.unread > 0 and not within_a_chunk(session),
    "first token": has_tokens(1),
    "decoding": has_tokens(5),
    "last token": has_tokens(29),
    "parked": lambda session: session.row is not None and session.row.place is Place.PARKED,
}


def brought_to(batch: Batch, phase: str) -> BatchedSession:
    """A session in this phase."""
    tokens = LONG if phase == "parked" else 30
    request = batch.model.request(VICTIM, **{**OPTIONS, "max_tokens": tokens})
    session = BatchedSession(batch, batch.resolve(request), request)
    if phase != "created":
        session.prepare()
    while not PHASES[phase](session):
        assert batch.turn()
    return session


@pytest.fixture
def layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a slow machine: a part of a chunk is one layer."""
    evaluate = Pace.evaluate

    def evaluate_one(pace: Pace, *given: Any) -> None:
        pace.seconds = 1e-9
        evaluate(pace, *given)

    monkeypatch.setattr(Pace, "evaluate", evaluate_one)


def in_a_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


@pytest.mark.parametrize("where", ["the same thread", "another thread", "a tap"])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.usefixtures("layer_by_layer")
def test_cancel_at_every_phase(
    llama: Model, bystander: list[Step], victim: list[Step], phase: str, where: str
) -> None:
    doomed, tokens = list[BatchedSession](), LONG if phase == "parked" else 50

    def cancel(step: Step) -> None:
        for session in doomed:
            session.cancel()

    with llama.batch(cap=3) as batch:
        # It is the first row, so that its tap comes before the next token of the other.
        other = opened(batch, BYSTANDER, max_tokens=tokens, taps=Taps(call=cancel))
        gone = brought_to(batch, phase)
        run = weakref.ref(gone.row.run) if gone.row is not None else lambda: None
        committed = len(gone.tokens)
        if where == "a tap":
            doomed.append(gone)
        elif where == "another thread":
            in_a_thread(gone.cancel)
        else:
            gone.cancel()
        assert_same(decoded(other), bystander[:tokens])
        assert (gone.state, gone.finish_reason) == (State.CANCELLED, "cancelled")
        assert (gone.row, run()) == (None, None)
        assert_same(decoded(gone), victim[:committed])
        assert len(batch.queue.waiting) + len(batch.queue.running) == 0


def test_cancel_from_another_thread_while_the_batch_is_turned(llama: Model, bystander: list[Step]) -> None:
    with llama.batch() as batch:
        other = opened(batch, BYSTANDER, max_tokens=LONG)
        gone = opened(batch, VICTIM, max_tokens=1900)
        asked_at = list[int]()

        def cancel() -> None:
            asked_at.append(len(gone.tokens))
            gone.cancel()

        threading.Timer(0.05, cancel).start()
        read_all(batch)
        assert gone.state is State.CANCELLED
        assert len(gone.tokens) < 1900
        assert (len(other.tokens), asked_at != []) == (LONG, True)
        assert other.tokens == tuple(token for step in bystander for token in step.tokens)


def raising_after(count: int, kind: type[BaseException] = ZeroDivisionError) -> Callable[..., Any]:
    """What raises in its n-th call, and else gives its last argument back."""
    calls = list[int]()

    def call(*given: Any) -> Any:
        calls.append(1)
        if len(calls) > count:
            raise kind("of my own")
        return given[-1]

    return call


def sampler(count: int, kind: type[BaseException] = ZeroDivisionError) -> Callable[[mx.array], mx.array]:
    call = raising_after(count, kind)
    return lambda logprobs: mx.argmax(call(logprobs), axis=-1)


class BreakingCache(KVCache):
    """Raises once it holds more positions than this."""

    LIMIT = 44

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        if self.offset >= self.LIMIT:
            raise ZeroDivisionError("of my own")
        return super().update_and_fetch(keys, values)  # type: ignore[return-value]


class Breaking:
    """A scheme whose caches stack with no others, so that its rows attend by themselves."""

    SPEC: ClassVar[KVSpec] = KVSpec(
        "breaking", "raises", "none", "none", frozenset({"full"}), settled={"full": "BreakingCache"}
    )

    def __init__(self, setting: KVSetting) -> None:
        pass

    def make(self, graph: Any) -> list[Any]:
        return [BreakingCache() for _ in graph.layers]

    def settle(self, caches: list[Any]) -> None:
        pass


class BreakingSettle(Breaking):
    """Raises when it settles."""

    SPEC: ClassVar[KVSpec] = KVSpec("unsettled", "raises", "none", "none", frozenset({"full"}))

    def make(self, graph: Any) -> list[Any]:
        return [KVCache() for _ in graph.layers]

    def settle(self, caches: list[Any]) -> None:
        if caches[0].offset >= BreakingCache.LIMIT:
            raise ZeroDivisionError("of my own")


# What makes the options of the row that raises, and the tokens that it commits before.
RAISING: dict[str, tuple[Callable[[], dict[str, Any]], int]] = {
    "a sampler at the first token": (lambda: {"sampler": sampler(0)}, 0),
    "a sampler": (lambda: {"sampler": sampler(4)}, 4),
    "a sampler that ends the process": (lambda: {"sampler": sampler(4, SystemExit)}, 4),
    "a processor": (lambda: {"logits_processors": (raising_after(4),)}, 4),
    "a cache": (lambda: {"kv": Breaking}, 5),
    "a scheme": (lambda: {"kv": BreakingSettle}, 4),
}


@pytest.mark.parametrize("ragged", [False, True], ids=["equal", "ragged"])
@pytest.mark.parametrize("what", RAISING)
def test_what_raises_in_one_row_ends_that_row_alone(
    llama: Model, bystander: list[Step], victim: list[Step], what: str, ragged: bool
) -> None:
    options, committed = RAISING[what]
    with llama.batch() as batch:
        prompts = [BYSTANDER, VICTIM] if ragged else [VICTIM, VICTIM]
        others = [opened(batch, prompt, max_tokens=20) for prompt in prompts]
        broken = opened(batch, VICTIM, max_tokens=LONG, **options())
        steps = read_all(batch)
        for other, want in zip(others, [bystander if ragged else victim, victim], strict=True):
            assert other.state is State.COMPLETED
            assert_same(steps[other.name], want[:20])
        assert (broken.state, broken.finish_reason, broken.row) == (State.FAILED, "failed", None)
        assert_same(steps[broken.name], victim[:committed])
        with pytest.raises((ZeroDivisionError, SystemExit), match="of my own"):
            broken.step()
        assert broken.step() is None


def test_a_row_that_raises_fails_as_it_does_alone(llama: Model, victim: list[Step]) -> None:
    session = llama.session(VICTIM, **{**OPTIONS, "sampler": sampler(4)})
    steps = list[Step]()
    with pytest.raises(ZeroDivisionError):
        steps += session.steps()
    assert len(session.tokens) == 4
    assert (session.state, session.finish_reason) == (State.FAILED, "failed")


class Failing:
    """A graph that raises once in a forward of this many rows."""

    def __init__(self, graph: Any, rows: int, after: int) -> None:
        self._graph, self._rows, self._left = graph, rows, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    def __call__(self, tokens: mx.array, cache: Any) -> mx.array:
        if tokens.shape == (self._rows, 1):
            self._left -= 1
            if self._left == 0:
                raise SessionFailed("a whole graph was needed", got="a part", next_step="mend it")
        return self._graph(tokens, cache=cache)


def test_a_forward_that_raises_ends_its_rows_and_no_others(llama: Model, bystander: list[Step]) -> None:
    model = replace(llama, graph=Failing(llama.graph, rows=2, after=3))
    with model.batch(cap=2) as batch:
        rows = [opened(batch, VICTIM, max_tokens=20) for _ in range(2)]
        later = opened(batch, BYSTANDER, max_tokens=LONG)
        steps = read_all(batch)
        assert_same(steps[later.name], bystander)
        for row in rows:
            assert row.state is State.FAILED
            assert 0 < len(row.tokens) < 20
            with pytest.raises(SessionFailed, match="a whole graph was needed") as raised:
                row.step()
            assert (raised.value.got, raised.value.next_step) == ("a part", "mend it")
    tokens = [step.tokens[0] for step in alone(llama, VICTIM, max_tokens=20)]
    assert all(list(row.tokens) == tokens[: len(row.tokens)] for row in rows)


Processor = Callable[[mx.array, mx.array], mx.array]


@pytest.fixture
def failing_late(tmp_path: Any) -> Processor:
    """At its fifth call it adds an array of a file that is cut off, which is read when it is needed."""
    path = tmp_path / "bias.npy"
    np.save(path, np.zeros((1, 1 << 20), np.float32))
    lazy: Any = mx.load(str(path))
    path.write_bytes(path.read_bytes()[:200])
    calls = raising_after(4)

    def process(tokens: mx.array, logits: mx.array) -> mx.array:
        try:
            return calls(logits)
        except ZeroDivisionError:
            return logits + lazy[:, :256].astype(logits.dtype)

    return process


@pytest.mark.parametrize("rows", [1, 2])
def test_what_fails_when_it_is_computed_is_not_taken_for_a_prompts(
    llama: Model, bystander: list[Step], failing_late: Processor, rows: int
) -> None:
    """MLX raises it wherever somebody waits next: here in the midst of another session's prompt."""
    with llama.batch(policy="prefill-first") as batch:
        broken = [opened(batch, VICTIM, logits_processors=(failing_late,))]
        broken += [opened(batch, VICTIM) for _ in range(rows - 1)]
        while len(broken[0].tokens) < 4:
            batch.turn()
        reading = opened(batch, BYSTANDER, max_tokens=LONG)
        assert_same(decoded(reading), bystander)
        for session in broken:
            # Four before the one that fails, which was in flight.
            assert len(session.tokens) == 4
            with pytest.raises(RuntimeError, match="read"):
                decoded(session)
            assert session.state is State.FAILED


def test_what_fails_when_it_is_computed_gives_no_token(llama: Model, failing_late: Processor) -> None:
    """Of rows that decode together nothing says whose it was."""
    with llama.batch() as batch:
        plain, broken = opened(batch, VICTIM), opened(batch, VICTIM, logits_processors=(failing_late,))
        read_all(batch)
        tokens = tuple(step.tokens[0] for step in alone(llama, VICTIM))
        assert broken.state is State.FAILED
        for session in (plain, broken):
            assert session.tokens == tokens[: len(session.tokens)]
            if session.state is State.FAILED:
                with pytest.raises(RuntimeError, match="read"):
                    session.step()


def test_a_tap_that_raises_holds_its_row_back(
    llama: Model, bystander: list[Step], victim: list[Step]
) -> None:
    with llama.batch() as batch:
        other = opened(batch, BYSTANDER, max_tokens=LONG)
        tapped = opened(batch, VICTIM, max_tokens=LONG, taps=Taps(call=raising_after(5)))
        assert_same(decoded(other), bystander)
        before = [step for _ in range(5) if (step := tapped.step()) is not None and step.tokens]
        with pytest.raises(ZeroDivisionError, match="of my own"):
            tapped.step()
        tapped.cancel()
        # Three chunks, two tokens, and a third that was committed before its tap raised.
        assert_same(before, victim[:2])
        assert tapped.tokens == tuple(step.tokens[0] for step in victim[:3])


def test_ctrl_c_in_a_forward_loses_nothing(llama: Model, bystander: list[Step], victim: list[Step]) -> None:
    def interrupting(logprobs: mx.array) -> mx.array:
        signal.raise_signal(signal.SIGINT)
        return mx.argmax(logprobs, axis=-1)

    with llama.batch() as batch:
        other, pressed = opened(batch, BYSTANDER, max_tokens=30), opened(batch, VICTIM, sampler=interrupting)
        interrupted = 0
        while not (other.finished and pressed.finished):
            try:
                batch.turn()
            except KeyboardInterrupt:
                interrupted += 1
        assert interrupted >= len(pressed.tokens) == 12
        assert_same(decoded(pressed), victim[:12])
        assert_same(decoded(other), bystander[:30])


class Lying(FirstCome):
    """Asks for the work that its class says."""

    SPEC: ClassVar[PolicySpec] = PolicySpec("lying", "says what is not so")
    answers: ClassVar[dict[str, Any]] = {}

    def admit(self, queue: Queue) -> Sequence[str]:
        return self.answers.get("admit", super().admit)(queue)

    def next(self, queue: Queue) -> Any:
        return self.answers.get("next", super().next)(queue)


def raises(queue: Queue) -> Any:
    raise ZeroDivisionError("of a policy")


LIES: dict[str, dict[str, Callable[[Queue], Any]]] = {
    "an id that does not wait": {"admit": lambda queue: ["nobody"]},
    "an id twice": {"admit": lambda queue: [r.id for r in queue.waiting] * 2},
    "no ids": {"admit": lambda queue: None},
    "no work": {"next": lambda queue: None},
    "admit raises": {"admit": raises},
    "next raises": {"next": raises},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_policy_that_raises_or_lies_stops_the_batch_and_loses_nothing(llama: Model, lie: str) -> None:
    class Own(Lying):
        answers: ClassVar[dict[str, Any]] = {}

    with llama.batch(policy=Own, cap=2) as batch:
        sessions = [opened(batch, VICTIM), opened(batch, BYSTANDER)]
        for _ in range(6):
            batch.turn()
        sessions.append(opened(batch, prompt_of(9)))
        sessions[0].cancel()
        Own.answers = LIES[lie]
        with pytest.raises(PolicyInvalid, match="policy lying"):
            batch.turn()
        Own.answers = {}
        steps = read_all(batch)
    assert_same(steps[sessions[1].name], alone(llama, BYSTANDER))
    assert_same(steps[sessions[2].name], alone(llama, prompt_of(9)))


def test_two_batches_on_one_model(llama: Model, bystander: list[Step], victim: list[Step]) -> None:
    with llama.batch() as one, llama.batch(cap=2) as two:
        pairs = [(opened(b, VICTIM, max_tokens=30), opened(b, BYSTANDER, max_tokens=30)) for b in (one, two)]
        while one.turn() | two.turn():
            pass
        for first, second in pairs:
            assert_same(decoded(first), victim[:30])
            assert_same(decoded(second), bystander[:30])


def test_a_batch_is_of_one_thread(llama: Model) -> None:
    errors = list[str]()
    with llama.batch() as batch:
        session = opened(batch, VICTIM)

        def elsewhere() -> None:
            for work in (batch.turn, session.step, lambda: opened(batch, VICTIM), session.fork):
                try:
                    work()
                except SessionFailed as error:
                    errors.append(str(error))

        in_a_thread(elsewhere)
        assert len(errors) == 4
        assert all("another thread" in error for error in errors)
        with pytest.raises(SessionFailed, match="a batch that had no session yet was needed"):
            batch.turn_alone()
        assert_same(decoded(session), alone(llama, VICTIM))


def test_seeds_and_processors_are_the_rows_own(llama: Model) -> None:
    samplings = [
        Sampling(temperature=0.8, top_p=0.9),
        Sampling(temperature=0.8, top_p=0.9, repetition_penalty=1.3),
        Sampling(),
        Sampling(temperature=1.5, min_p=0.05, logit_bias={7: 3.0}),
    ]
    with llama.batch() as batch:
        asked = [{"sampling": sampling, "seed": seed} for seed, sampling in enumerate(samplings * 2)]
        sessions = [opened(batch, VICTIM, **options) for options in asked]
        steps = read_all(batch)
    for session, options in zip(sessions, asked, strict=True):
        assert_same(steps[session.name], alone(llama, VICTIM, **options))
    assert len({session.tokens for session in sessions}) > 6
