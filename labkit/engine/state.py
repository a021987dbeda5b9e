"""State: where a session is in its life, and what it has committed at its end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

FinishReason = Literal["stop", "length", "cancelled", "failed"]


class State(StrEnum):
    """created -> preparing -> queued -> running -> settling -> completed | cancelled | failed.

    preparing makes the caches; queued waits for its turn (a lone session has it at once); settling checks
    the caches against the plan, after the last token. Every state but the last three accepts a cancel.
    """

    CREATED = "created"
    PREPARING = "preparing"
    QUEUED = "queued"
    RUNNING = "running"
    SETTLING = "settling"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


ENDED = (State.COMPLETED, State.CANCELLED, State.FAILED)


@dataclass(frozen=True, slots=True)
class Completion:
    """What a session committed. text leaves out what stopped it; tokens keep it.

    stop_reason: the token id or the string that stopped it, where one did.
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason | None
    prompt_tokens: int
    stop_reason: int | str | None = None
