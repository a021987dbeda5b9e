"""Step: one bounded unit of work of a session. Knows nothing of models or caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from labkit.core.taps import Tapped

StepKind = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class TopLogprobs:
    """A committed token among its alternatives. logprob in nats, of the distribution before filters.

    top: the most likely token ids with their log-probabilities, the likeliest first.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


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
    text: what became printable with this step; the parts of all steps of a session that ran to its end,
    joined, are its text.
    top_logprobs: one entry a token when the request asked for alternatives, else empty.
    taps: what the request's taps recorded, None without taps.
    """

    kind: StepKind
    tokens: tuple[int, ...]
    logprobs: Any
    seconds: float
    kv_bytes: int
    rows: int
    position: int
    text: str = ""
    top_logprobs: tuple[TopLogprobs, ...] = ()
    taps: Tapped | None = None
