"""Request: one completion asked for, as data. Validation is the planner's."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn. temperature 0 is greedy; top_p 1 keeps the whole distribution."""

    temperature: float = 0.0
    top_p: float = 1.0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class Request:
    """prompt: token ids. stop_tokens: ids that end the completion.

    prefill_chunk: tokens per prefill step; None takes the backend's default, which decides numerics.
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
