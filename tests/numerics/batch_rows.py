"""Rows of a batch as tests compare them: what a session decodes alone, and what it decoded among others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from labkit.core.step import Step
from labkit.engine.batching.batch import Batch
from labkit.engine.batching.session import BatchedSession
from labkit.engine.model import Model
from labkit.engine.session import Session

OPTIONS: dict[str, Any] = {"max_tokens": 12, "prefill_chunk": 16, "stop_tokens": (), "logprobs": True}


def prompt_of(length: int, salt: int = 0) -> list[int]:
    """Ids of a small vocabulary, other ones for every length and salt."""
    return [(7 * length + 3 * i + 31 * salt + 1) % 250 for i in range(length)]


def decoded(session: Session) -> list[Step]:
    """The decode steps that are left of a session."""
    return [step for step in session.steps() if step.tokens]


def alone(model: Model, prompt: Sequence[int], **options: Any) -> list[Step]:
    """The decode steps of a serial session."""
    return decoded(model.session(prompt, **{**OPTIONS, **options}))


def opened(batch: Batch, prompt: Sequence[int], **options: Any) -> BatchedSession:
    """A session in a batch with the options of `alone`."""
    return batch.session(prompt, **{**OPTIONS, **options})


def read_all(batch: Batch) -> dict[str, list[Step]]:
    """Run all sessions to their ends: the decode steps of each, by its name."""
    found: dict[str, list[Step]] = {session.name: [] for session in batch.sessions()}
    for session, step in batch.steps():
        if step.tokens:
            found.setdefault(session.name, []).append(step)
    return found


def assert_same(got: Sequence[Step], want: Sequence[Step]) -> None:
    """Tokens and log-probabilities are equal bit for bit."""
    assert [step.tokens for step in got] == [step.tokens for step in want]
    for index, (mine, its) in enumerate(zip(got, want, strict=True)):
        assert mx.array_equal(mine.logprobs, its.logprobs), f"log-probabilities differ at token {index}"


def largest_gap(got: Sequence[Step], want: Sequence[Step]) -> float:
    """The largest difference of two log-probabilities, in nats."""
    gaps = [mx.abs(mine.logprobs - its.logprobs).max() for mine, its in zip(got, want, strict=True)]
    return float(mx.stack(gaps).max().item())  # type: ignore[arg-type]
