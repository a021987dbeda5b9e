"""Holding a session: branches share buffers until they write, files are whole or refused, memory is freed."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import labkit
from labkit.core.errors import PlanRefused, SessionFailed
from labkit.core.sampling import Sampling
from labkit.core.taps import Taps
from labkit.engine import session_file
from labkit.engine.chunk import Chunk, Pace
from labkit.engine.model import Model
from labkit.engine.session import Session, State
from tests.numerics.tiny_models import GEMMA3, LLAMA, MAMBA, tiny_model

PROMPT = list(range(1, 40))


@pytest.fixture(scope="module")
def llama() -> Model:
    return tiny_model(LLAMA)


def started(model: Model, tokens: int = 3, **options: Any) -> Session:
    """A session that has committed `tokens` tokens."""
    asked = {"max_tokens": 12, "prefill_chunk": 16, "stop_tokens": (), **options}
    session = model.session(PROMPT, **asked)
    session.run(until=lambda step: len(session.tokens) == tokens)
    return session


def active_bytes() -> int:
    gc.collect()
    mx.synchronize()
    return mx.get_active_memory()


@pytest.mark.parametrize("kv", ["bf16", "affine:8", "affine:4"])
def test_rewinding_redraws_the_same_bits(llama: Model, kv: str) -> None:
    whole = started(llama, 11, kv=kv, logprobs=True)
    session = started(llama, 7, kv=kv, logprobs=True)
    session.rewind(5)
    again = [step for step in session.steps() if step.kind == "decode"]
    expected = [
        s
        for s in llama.session(
            PROMPT, max_tokens=12, prefill_chunk=16, stop_tokens=(), kv=kv, logprobs=True
        ).steps()
        if s.tokens
    ]
    assert session.tokens[:11] == whole.tokens
    for step, want in zip(again, expected[2:], strict=True):
        assert mx.array_equal(step.logprobs, want.logprobs)


def test_a_branch_with_another_seed_leaves_the_trunk_alone(llama: Model) -> None:
    options: dict[str, Any] = {"sampling": Sampling(temperature=2.0), "seed": 1}
    alone = started(llama, 11, **options).tokens
    trunk = started(llama, 3, **options)
    branches = [trunk.fork(seed=seed) for seed in range(8)]
    ends = [branch.run().tokens for branch in branches]
    assert {end[:3] for end in ends} == {alone[:3]}
    assert len(set(ends)) > 4
    trunk.run(until=lambda step: len(trunk.tokens) == 11)
    assert trunk.tokens == alone


def test_a_branch_may_take_penalties_that_the_trunk_had_not(llama: Model) -> None:
    trunk = started(llama, 3)
    penal = Sampling(repetition_penalty=1.5, frequency_penalty=0.5, repetition_context_size=50)
    branch = trunk.fork(sampling=penal)
    tokens = branch.run().tokens
    # Teacher forcing: what a whole run under these penalties draws after the same three tokens.
    whole = llama.session(PROMPT, max_tokens=12, prefill_chunk=16, stop_tokens=(), sampling=penal)
    whole.prepare()
    execution: Any = whole._execution
    execution.give(trunk.tokens)
    assert whole.run().tokens == tokens


def test_penalties_that_were_left_and_taken_up_again_see_every_token(llama: Model) -> None:
    penal = Sampling(repetition_penalty=1.5, frequency_penalty=0.5, repetition_context_size=50)
    session = started(llama, 3, sampling=penal).fork(sampling=Sampling())
    session.run(until=lambda step: len(session.tokens) == 6)
    again = session.fork(sampling=penal, logprobs=True)
    direct = started(llama, 0, sampling=penal, logprobs=True)
    execution: Any = direct._execution
    execution.give(session.tokens)
    expected = [step for step in direct.steps() if step.tokens][6:]
    for step, want in zip(again.steps(), expected, strict=True):
        assert step.tokens == want.tokens
        assert mx.array_equal(step.logprobs, want.logprobs)


def test_forking_copies_nothing_until_a_write(llama: Model) -> None:
    trunk = started(llama)
    before, size = active_bytes(), trunk.kv_bytes
    branches = [trunk.fork() for _ in range(8)]
    # Handles and the forward in flight are shared, so eight branches are far below one cache.
    assert active_bytes() - before < size / 4
    for branch in branches:
        branch.step()
    assert active_bytes() - before > 6 * size


def test_dropping_sessions_gives_the_memory_back(llama: Model) -> None:
    def hold_and_drop(kv: str) -> None:
        session = started(llama, 2, kv=kv, taps=Taps(logits=True))
        session.snapshot()
        session.fork(seed=3).step()
        session.rewind(1)

    for kv in ("bf16", "affine:8"):
        hold_and_drop(kv)
    before = active_bytes()
    for index in range(500):
        hold_and_drop(("bf16", "affine:8")[index % 2])
    assert active_bytes() == before


def test_a_window_that_was_passed_is_replayed_from_the_newest_snapshot() -> None:
    model = tiny_model({**GEMMA3, "sliding_window": 16})
    whole = started(model, 11).tokens
    session = started(model, 3)
    session.snapshot()
    session.run(until=lambda step: len(session.tokens) == 8)
    with pytest.raises(SessionFailed, match=r"layer 0 slides.*window of 16") as refused:
        session.rewind(2)
    assert "rewind(2, replay=True)" in str(refused.value)
    assert len(session.tokens) == 8
    for count in (2, 2, 4):
        session.rewind(count, replay=True)
        session.run(until=lambda step: len(session.tokens) == 8)
        assert session.tokens == whole[:8]


def test_an_interrupted_replay_leaves_the_session_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model({**GEMMA3, "sliding_window": 16})
    whole = started(model, 11).tokens
    session = started(model, 5)
    session.snapshot()
    session.run(until=lambda step: len(session.tokens) == 8)
    kind: Any = type(session._execution)
    advance = kind.advance

    def interrupt(run: Any) -> Any:
        if run is not session._execution:
            raise KeyboardInterrupt
        return advance(run)

    monkeypatch.setattr(kind, "advance", interrupt)
    with pytest.raises(KeyboardInterrupt):
        session.rewind(2, replay=True)
    assert session.state is State.RUNNING
    session.run(until=lambda step: len(session.tokens) == 11)
    assert session.tokens == whole


@pytest.mark.parametrize("kv", ["bf16", "affine:8"])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["f32", "bf16"])
def test_a_saved_session_goes_on_bit_for_bit(dtype: mx.Dtype, kv: str, tmp_path: Path) -> None:
    model = tiny_model(LLAMA, dtype)
    options: dict[str, Any] = {
        "kv": kv,
        "logprobs": True,
        "top_logprobs": 3,
        "sampling": Sampling(temperature=0.8, top_k=20, repetition_penalty=1.1, logit_bias={5: -2.0}),
        "stop": ("zzz",),
        "seed": 9,
    }
    session = started(model, 4, **options)
    path = session.save(tmp_path / "half-done")
    resumed = labkit.resume(path, model=model)
    assert (resumed.tokens, resumed.text, resumed.request) == (session.tokens, session.text, session.request)
    for step, want in zip(resumed.steps(), session.steps(), strict=True):
        assert (step.tokens, step.text, step.top_logprobs) == (want.tokens, want.text, want.top_logprobs)
        assert mx.array_equal(step.logprobs, want.logprobs)
        assert (step.position, step.kv_bytes) == (want.position, want.kv_bytes)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_saving_before_and_within_prefill(llama: Model, steps: int, tmp_path: Path) -> None:
    session = llama.session(PROMPT, max_tokens=4, prefill_chunk=16, stop_tokens=())
    for _ in range(steps):
        session.step()
    resumed = labkit.resume(session.save(tmp_path / "s"), model=llama)
    assert resumed.state is session.state
    kinds = [step.kind for step in resumed.steps()]
    assert kinds == ["prefill"] * (3 - steps) + ["decode"] * 4
    assert resumed.tokens == session.run().tokens


@pytest.mark.parametrize("how", ["save", "fork"])
def test_a_chunk_that_was_interrupted_goes_on_elsewhere(llama: Model, how: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "max_tokens": 4,
        "prefill_chunk": 16,
        "stop_tokens": (),
        "taps": Taps(hidden=(1,)),
    }
    session = llama.session(PROMPT, **options)
    session.prepare()
    execution: Any = session._execution
    advance = execution.advance

    def advance_and_interrupt() -> Any:
        execution.advance = advance
        signal.raise_signal(signal.SIGINT)
        return advance()

    execution.advance = advance_and_interrupt
    with pytest.raises(KeyboardInterrupt):
        session.step()
    assert execution._chunk is not None
    del execution.advance
    other = session.fork() if how == "fork" else labkit.resume(session.save(tmp_path / "s"), model=llama)
    whole: list[Any] = list(llama.session(PROMPT, **options).steps())
    for one in (other, session):
        steps: list[Any] = list(one.steps())
        assert [(s.kind, s.tokens, s.position) for s in steps] == [
            (s.kind, s.tokens, s.position) for s in whole
        ]
        assert all(
            mx.array_equal(s.taps.hidden[1], w.taps.hidden[1]) for s, w in zip(steps, whole, strict=True)
        )


@pytest.mark.parametrize("kv", ["bf16", "affine:8"])
def test_taps_change_no_bit(llama: Model, kv: str) -> None:
    options: dict[str, Any] = {"kv": kv, "max_tokens": 6, "prefill_chunk": 16, "logprobs": True}
    taps = Taps(logits=True, hidden=(0, 1), attention=(1,))
    plain = list(llama.session(PROMPT, stop_tokens=(), **options).steps())
    tapped: list[Any] = list(llama.session(PROMPT, stop_tokens=(), taps=taps, **options).steps())
    for step, want in zip(tapped, plain, strict=True):
        assert (step.kind, step.tokens, step.kv_bytes) == (want.kind, want.tokens, want.kv_bytes)
        fed = 16 if step.position in (16, 32) else 6 if step.kind == "prefill" else 1
        shapes = (step.taps.logits.shape, step.taps.hidden[0].shape, sorted(step.taps.hidden))
        assert shapes == ((fed, 256), (fed, 128), [0, 1])
        assert step.taps.attention[1].shape[:2] == (2, fed)
        if want.tokens:
            assert mx.array_equal(step.logprobs, want.logprobs)
            logits = step.taps.logits
            assert mx.array_equal(logits - mx.logsumexp(logits, keepdims=True), want.logprobs)


def test_taps_that_cannot_be_recorded_are_refused(llama: Model) -> None:
    with pytest.raises(
        PlanRefused, match=r"(?s)taps\.hidden: .*got layer 2: there are 2 layers.*taps\.attention: .*layer 9"
    ):
        llama.session(PROMPT, taps=Taps(hidden=(0, 2), attention=(9,)))
    with pytest.raises(PlanRefused, match=r"taps\.attention: .*layer 0: it has no attention"):
        tiny_model(MAMBA).session(PROMPT, taps=Taps(attention=(0,)))


def test_a_branch_with_other_taps_records_them_from_its_first_step(llama: Model) -> None:
    for before, after in ((Taps(), Taps(hidden=(0,))), (Taps(hidden=(0,)), Taps(logits=True))):
        trunk = started(llama, 4, taps=before, logprobs=True)
        expected = [step for step in started(llama, 0, taps=after, logprobs=True).steps() if step.tokens]
        steps: list[Any] = list(trunk.fork(taps=after).steps())
        for step, want in zip(steps, expected[4:], strict=True):
            assert mx.array_equal(step.logprobs, want.logprobs)
            assert want.taps is not None
            assert sorted(step.taps.hidden) == list(after.hidden)
            assert (step.taps.logits is not None) == after.logits
            for layer in after.hidden:
                assert mx.array_equal(step.taps.hidden[layer], want.taps.hidden[layer])


def test_taps_of_a_branch_that_cannot_run_a_forward_again_are_refused() -> None:
    trunk = started(tiny_model(MAMBA), 4)
    with pytest.raises(SessionFailed, match="layer 0 is recurrent and keeps one state") as refused:
        trunk.fork(taps=Taps(hidden=(0,)))
    assert "name the taps when the session is made" in str(refused.value)


def test_more_alternatives_draw_nothing_again(llama: Model) -> None:
    calls = []

    def sampler(logprobs: mx.array) -> mx.array:
        calls.append(len(calls))
        return mx.array([calls[-1]])

    trunk = started(llama, 3, sampler=sampler)
    drawn = len(calls)
    step = trunk.fork(top_logprobs=2).step()
    assert step is not None
    assert step.tokens == (drawn - 1,)
    assert [len(top.top) for top in step.top_logprobs] == [2]


def test_rewinding_says_why_recurrent_layers_cannot() -> None:
    session = started(tiny_model(MAMBA), 4)
    with pytest.raises(SessionFailed, match="layer 0 is recurrent and keeps one state, not one per token"):
        session.rewind(2)


def test_a_session_that_is_due_to_fail_is_freed_when_dropped(llama: Model) -> None:
    drawn = []

    def sampler(logprobs: mx.array) -> mx.array:
        drawn.append(1)
        if len(drawn) > 3:
            raise ZeroDivisionError
        return mx.argmax(logprobs, axis=-1)

    session = llama.session(PROMPT, max_tokens=8, prefill_chunk=16, stop_tokens=(), sampler=sampler)
    for _ in range(6):
        session.step()
    assert len(session.tokens) == 3
    gone = weakref.ref(session._execution)
    gc.disable()
    try:
        del session
        assert gone() is None
    finally:
        gc.enable()


def test_parts_of_a_chunk_follow_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of 0.09 s each: the number at most doubles, and settles at what 0.3 s hold."""
    monkeypatch.setattr(mx, "eval", lambda *arrays: None)
    assert parts_of(Pace(), layers=12, layer_s=0.09, tokens=10) == [1, 1, 2, 3, 3, 2]


def test_parts_of_a_chunk_follow_what_others_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a chunk of 10 tokens, one of 5 is taken to cost half: 6 layers fit at once."""
    monkeypatch.setattr(mx, "eval", lambda *arrays: None)
    first = Pace()
    parts_of(first, layers=12, layer_s=0.09, tokens=10)
    assert parts_of(Pace(first.learnt), layers=12, layer_s=0.045, tokens=5) == [6, 6]


def parts_of(pace: Pace, *, layers: int, layer_s: float, tokens: int) -> list[int]:
    """How many layers are evaluated at a time, where the first costs nothing and the others `layer_s`."""
    chunk, sizes = Chunk(tokens, list(range(layers)), None), list[int]()

    def layers_paid() -> float:
        """Time stands at the layers that are done, all but the first."""
        return layer_s * max(0, layers - len(chunk.waiting) - 1)

    while chunk.waiting:
        before = len(chunk.waiting)
        pace.evaluate(chunk, layers, layers_paid)
        sizes.append(before - len(chunk.waiting))
    return sizes


def test_what_no_file_holds_is_refused(llama: Model, tmp_path: Path) -> None:
    session = started(
        llama,
        sampler=lambda logprobs: mx.argmax(logprobs, axis=-1),
        logits_processors=[lambda tokens, logits: logits],
        taps=Taps(call=lambda step: None),
    )
    with pytest.raises(SessionFailed, match="a sampler and logits processors and a tap's call of your own"):
        session.save(tmp_path / "s")
    assert list(tmp_path.iterdir()) == []
    assert session.step() is not None


def test_a_folder_that_is_not_there(llama: Model, tmp_path: Path) -> None:
    session = started(llama)
    with pytest.raises(SessionFailed, match=r"that can be written were needed for .*gone/s"):
        session.save(tmp_path / "gone" / "s")
    assert session.step() is not None


def test_a_name_that_is_no_file(llama: Model, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(SessionFailed, match="the name of a file was needed"):
            started(llama).save(name)
    assert [file.is_fifo() for file in tmp_path.iterdir()] == [True]


def test_a_full_disk_keeps_the_older_file(
    llama: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = started(llama)
    path = session.save(tmp_path / "s")
    before = path.read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(session_file.os, "fsync", full)
    session.step()
    with pytest.raises(SessionFailed, match="No space left on device"):
        session.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["s"]


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A file with another JSON text under a fitting hash: what a hostile writer would make."""

    def damage(path: Path) -> None:
        from safetensors import safe_open

        with safe_open(path, "numpy") as file:
            data = json.loads(file.metadata()["labkit_session"])
        change(data)
        arrays, text = load_file(path), json.dumps(data)
        save_file(arrays, path, {"labkit_session": text, "sha256": session_file._digest(text, arrays)})

    return damage


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[random.Random(0).randrange(len(content) // 2, len(content))] ^= 0xFF
    path.write_bytes(content)


def deep(path: Path) -> None:
    text = '{"a":' * 100_000 + "1" + "}" * 100_000
    save_file({}, path, {"labkit_session": text, "sha256": session_file._digest(text, {})})


def rename_class(data: dict[str, Any]) -> None:
    text = json.dumps(data["state"]).replace("mlx_lm.models.cache.KVCache", "subprocess.Popen")
    data["state"] = json.loads(text)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "absent": (lambda path: path.unlink(), "no such file"),
    "empty": (lambda path: path.write_bytes(b""), "a whole session saved by labkit"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-9]), "a whole session saved by labkit"),
    "flipped": (flip, "its content is not what was written"),
    "nested without end": (deep, "a whole session saved by labkit"),
    "a request of another shape": (edited(lambda data: data.update(request=[])), "a whole session saved"),
    "a later field": (
        edited(lambda data: data["request"].update(later=1)),
        "a whole session saved by labkit",
    ),
    "not a session": (lambda path: save_file({"a": np.zeros(2)}, path), "no session in it"),
    "later schema": (edited(lambda data: data.update(schema=99)), "schema 99"),
    "another model": (
        edited(lambda data: data["model"].update(fingerprint="0" * 16)),
        "the model that was saved",
    ),
    "another mlx": (
        edited(lambda data: data["versions"].update(mlx="0.1")),
        "the mlx that it was saved",
    ),
    "another plan": (
        edited(lambda data: data.update(plan="0" * 16)),
        "the plan that it was saved",
    ),
    "a class of nobody's": (edited(rename_class), "a cache class that this labkit knows"),
    "no caches": (edited(lambda data: data["state"].clear()), "a whole session saved by labkit"),
    "another token": (edited(lambda data: data["tokens"].pop()), "a whole session saved by labkit"),
    "ids out of range": (
        edited(lambda data: data.update(tokens=[2**31] * 3)),
        "a whole session saved by labkit",
    ),
    "a pipe": (lambda path: (path.unlink(), os.mkfifo(path)), "a folder, pipe or device"),
    "no tokens": (edited(lambda data: data.pop("tokens")), "a whole session saved by labkit"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_files_that_cannot_go_on_are_refused(llama: Model, name: str, tmp_path: Path) -> None:
    path = started(llama).save(tmp_path / "s")
    damage, message = DAMAGE[name]
    damage(path)
    with pytest.raises(SessionFailed, match=message):
        labkit.resume(path, model=llama)


@pytest.mark.parametrize("name", ["x" * 300, "a\x00b"])
def test_names_that_no_file_can_have(llama: Model, name: str, tmp_path: Path) -> None:
    with pytest.raises(SessionFailed, match="that can be written"):
        started(llama).save(tmp_path / name)
    with pytest.raises(SessionFailed, match="a whole session saved by labkit"):
        labkit.resume(tmp_path / name, model=llama)


def test_an_error_in_a_sampler_keeps_what_was_drawn_before_it(llama: Model) -> None:
    drawn = []

    def sampler(logprobs: mx.array) -> mx.array:
        if len(drawn) == 3:
            raise ZeroDivisionError
        drawn.append(mx.argmax(logprobs, axis=-1))
        return drawn[-1]

    session = llama.session(PROMPT, max_tokens=8, stop_tokens=(), sampler=sampler)
    with pytest.raises(ZeroDivisionError) as error:
        session.run()
    assert "raise ZeroDivisionError" in error.value.__notes__[0]
    assert session.state is State.FAILED
    assert session.tokens == tuple(int(token.item()) for token in drawn)
    assert len(session.tokens) == 3
