"""Request: one completion asked for, as data. Validation is the planner's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from labkit.core.sampling import Sampling
from labkit.core.taps import Taps

# mlx-lm's: log-probabilities `(1, vocab)` -> ids `(1,)`; ids so far and logits `(1, vocab)` -> logits.
Sampler = Callable[[Any], Any]
LogitsProcessor = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Request:
    """prompt: token ids. stop_tokens: ids that end the completion. stop: strings that end it.

    prefill_chunk: tokens per prefill step; None takes the backend's default, which decides numerics.
    logprobs: keep the whole distribution of each token. top_logprobs: keep that many alternatives.
    sampler: mlx-lm's or one's own, in place of the filters and the draw of `sampling`; it draws from whatever
    generator it knows. logits_processors: run after those of `sampling`.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    kv: str = "bf16"
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    prefill_chunk: int | None = None
    logprobs: bool = False
    stop_tokens: tuple[int, ...] = ()
    method: str | None = None
    stop: tuple[str, ...] = ()
    top_logprobs: int = 0
    sampler: Sampler | None = None
    logits_processors: tuple[LogitsProcessor, ...] = ()
    taps: Taps = field(default_factory=Taps)

    def changed(self, **changes: Any) -> Request:
        """A copy with other fields; a lone stop string and lists are taken too. TypeError for others."""
        if isinstance(changes.get("stop"), str):
            changes["stop"] = (changes["stop"],)
        return replace(self, **{k: tuple(v) if isinstance(v, list) else v for k, v in changes.items()})
