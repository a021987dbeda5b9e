"""Step: one bounded unit of work of a session. Knows nothing of models or caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

StepKind = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class Step:
    """What one unit of work committed.

    kind: `prefill` (a chunk of the prompt) or `decode`.
    tokens: token ids committed by this step; empty for a prefill chunk.
    logprobs: `(len(tokens), vocab)` log-probabilities in nats when the request asked for them, else None.
    seconds: wall time of this step on the session's clock.
    kv_bytes: bytes that the caches hold after the step (allocated, not only filled).
    rows: rows of the batch that the step ran.
    position: length of the sequence so far: prompt tokens processed and tokens committed.
    """

    kind: StepKind
    tokens: tuple[int, ...]
    logprobs: Any
    seconds: float
    kv_bytes: int
    rows: int
    position: int
