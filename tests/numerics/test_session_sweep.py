"""Holding a session of every architecture: branches, rewinds and files go on as a whole run does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import labkit
from labkit.core.step import Step
from labkit.engine.session import Session
from tests.numerics.rewinding import rewound
from tests.numerics.tiny_configs import METAL_ONLY, TINY
from tests.numerics.tiny_models import tiny_model
from tests.oracle import random_prompt

TOKENS = 8
# Longer than the tiny windows of 32 once a few tokens are drawn, and shorter than them.
PROMPTS = {"within the window": 9, "over the window": 30}


def rest_of(session: Session) -> list[Step]:
    return [step for step in session.steps() if step.tokens]


def assert_equal(got: list[Step], want: list[Step]) -> None:
    assert [step.tokens for step in got] == [step.tokens for step in want]
    assert all(mx.array_equal(a.logprobs, b.logprobs) for a, b in zip(got, want, strict=True))


def half_done(model: Any, prompt: list[int]) -> Session:
    session = model.session(prompt, max_tokens=TOKENS, prefill_chunk=16, logprobs=True, stop_tokens=())
    session.run(until=lambda step: len(session.tokens) == 5)
    return session


@pytest.mark.parametrize("length", PROMPTS.values(), ids=PROMPTS)
@pytest.mark.parametrize("name", [name for name in TINY if name not in METAL_ONLY])
def test_branches_files_and_rewinds_equal_a_whole_run(name: str, length: int, tmp_path: Path) -> None:
    model = tiny_model(TINY[name])
    prompt = random_prompt(model, length)
    options: dict[str, Any] = {"prefill_chunk": 16, "logprobs": True, "stop_tokens": ()}
    whole = rest_of(model.session(prompt, max_tokens=TOKENS, **options))
    session = half_done(model, prompt)
    assert_equal(rest_of(session.fork()), whole[5:])
    assert_equal(rest_of(labkit.resume(session.save(tmp_path / "s"), model=model)), whole[5:])
    refused = rewound(session, 3)
    if refused is not None:
        assert "replay=True" in refused
        assert set(model.profile.own_layout()) != {"KVCache"}
        session.rewind(3, replay=True)
    assert_equal(rest_of(session), whole[2:])
