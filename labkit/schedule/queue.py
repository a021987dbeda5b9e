"""Queue: what a policy sees of the requests: frozen plain numbers, and no array, cache or session."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

WorkKind = Literal["prefill", "decode"]
_PLAIN = (int, float, str)


@dataclass(frozen=True, slots=True)
class RequestState:
    """One request that waits or runs.

    client: whom it belongs to, as far as fairness goes. prefilled: prompt tokens processed so far. Like
    everywhere in labkit the last prompt token is decoded, not prefilled. generated: tokens committed.
    kv_bytes: held in its caches now. reserved_bytes: what they may grow to, from `bytes_at` of the budget.
    served_s: when it last had a unit of work; before the first its admission, and while it waits its arrival.
    """

    id: str
    arrival_s: float
    prompt_tokens: int
    max_tokens: int
    prefilled: int = 0
    generated: int = 0
    kv_bytes: int = 0
    reserved_bytes: int = 0
    served_s: float = 0.0
    client: str = ""

    def __post_init__(self) -> None:
        wrong = [f.name for f in fields(self) if type(getattr(self, f.name)) not in _PLAIN]
        if wrong:
            raise TypeError(f"plain numbers and text are needed in a request's state: {', '.join(wrong)}")

    @property
    def prompt_left(self) -> int:
        """Prompt tokens that are still to be prefilled, the last one excepted."""
        return max(self.prompt_tokens - 1 - self.prefilled, 0)


@dataclass(frozen=True, slots=True)
class Queue:
    """All requests at one moment. waiting: by arrival. running: by admission, each a row.

    cap: rows at most. free_bytes: of the KV budget; None where there is none. last: the kind of the unit of
    work before this one; None before the first.
    """

    now_s: float
    waiting: tuple[RequestState, ...]
    running: tuple[RequestState, ...]
    cap: int
    free_bytes: int | None = None
    last: WorkKind | None = None

    @property
    def prefilling(self) -> tuple[RequestState, ...]:
        """The rows whose prompt is not read yet."""
        return tuple(r for r in self.running if r.prompt_left)

    @property
    def decoding(self) -> tuple[RequestState, ...]:
        """The rows that the next decode step would run, all of them at once."""
        return tuple(r for r in self.running if not r.prompt_left)
