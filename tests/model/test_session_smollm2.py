"""Holding the bundled model: over a process restart, and under Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import labkit
from labkit.engine import chunk as chunk_module
from labkit.engine.model import Model
from labkit.engine.session import Session, State

TEXT = "A session can be put away in the middle of a sentence and taken up again"
SAMPLING = labkit.Sampling(temperature=0.9, top_k=40, presence_penalty=0.2)

SAVER = """
import os, signal, sys
import labkit
session = labkit.load("smollm2").session(
    {text!r}, kv={kv!r}, max_tokens=12, prefill_chunk=8, seed=5, logprobs=True,
    sampling=labkit.Sampling(temperature=0.9, top_k=40, presence_penalty=0.2))
session.run(until=lambda step: len(session.tokens) == 5)
session.save(sys.argv[1])
os.kill(os.getpid(), signal.SIGKILL)
"""


def whole(model: Model, kv: str) -> Session:
    return model.session(
        TEXT, kv=kv, max_tokens=12, prefill_chunk=8, seed=5, logprobs=True, sampling=SAMPLING
    )


@pytest.mark.parametrize("kv", ["bf16", "affine:8"])
def test_a_session_goes_on_after_its_process_was_killed(smollm2: Model, kv: str, tmp_path: Path) -> None:
    path = tmp_path / "session"
    child = [sys.executable, "-c", SAVER.format(text=TEXT, kv=kv), str(path)]
    done = subprocess.run(child, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    resumed = labkit.resume(path)
    assert len(resumed.tokens) == 5
    expected = [step for step in whole(smollm2, kv).steps() if step.tokens]
    for step, want in zip(resumed.steps(), expected[5:], strict=True):
        assert step.tokens == want.tokens
        assert mx.array_equal(step.logprobs, want.logprobs)


def test_ctrl_c_comes_within_a_chunk_and_loses_nothing(
    smollm2: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a slow machine: no more than one layer fits the time that Ctrl-C may have to wait."""
    monkeypatch.setattr(chunk_module, "PART_S", 1e-9)
    prompt = [index % 1000 + 100 for index in range(301)]
    options: dict[str, Any] = {"max_tokens": 2, "prefill_chunk": 2048, "stop_tokens": ()}
    session = smollm2.session(prompt, **options)
    session.prepare()
    execution: Any = session._execution
    evaluate, parts = execution._evaluate_part, []

    def interrupted(chunk: Any) -> None:
        evaluate(chunk)
        parts.append(len(chunk.waiting))
        if len(parts) == 2:
            signal.raise_signal(signal.SIGINT)

    execution._evaluate_part = interrupted
    with pytest.raises(KeyboardInterrupt):
        session.run()
    assert parts == [29, 28]
    assert (session.state, session.tokens) == (State.RUNNING, ())
    assert session.run().tokens == smollm2.session(prompt, **options).run().tokens
