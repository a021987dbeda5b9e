"""Admission: a byte budget for keys and values. Knows what a request may grow to, not what runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from labkit.core.errors import LabkitError
from labkit.schedule.queue import Queue, RequestState


@dataclass(frozen=True, slots=True)
class Budget:
    """limit_bytes: for the caches of all rows. bytes_at: tokens of one row -> bytes its caches hold then.

    A row is admitted with what it can grow to at prompt + max_tokens, so no row has to be thrown out later.
    """

    limit_bytes: int
    bytes_at: Callable[[int], float]

    def __post_init__(self) -> None:
        if self.limit_bytes <= 0:
            raise LabkitError("a KV budget above 0 bytes was needed", got=self.limit_bytes)

    def reserve(self, request: RequestState) -> RequestState:
        """The request with `reserved_bytes` filled in."""
        return replace(request, reserved_bytes=self.held(request.prompt_tokens + request.max_tokens))

    def held(self, tokens: int) -> int:
        """Whole bytes of a row at a number of tokens, never fewer than `bytes_at` says."""
        return -int(-self.bytes_at(tokens) // 1)

    def refusal(self, request: RequestState) -> str | None:
        """Why a request can never run, even alone; None where it can."""
        needed = self.held(request.prompt_tokens + request.max_tokens)
        if needed <= self.limit_bytes:
            return None
        return (
            f"{request.prompt_tokens} prompt and {request.max_tokens} new tokens may take {needed} bytes, "
            f"and the KV budget is {self.limit_bytes}"
        )

    def free(self, running: Sequence[RequestState]) -> int:
        """Bytes that no running row has reserved."""
        return self.limit_bytes - sum(r.reserved_bytes for r in running)


def fitting(queue: Queue, wanted: Sequence[str]) -> list[str]:
    """The first of the wanted ids, up to the first that has no row or no bytes."""
    waiting = {r.id: r for r in queue.waiting}
    free, admitted = queue.free_bytes, list[str]()
    for name in wanted[: max(queue.cap - len(queue.running), 0)]:
        if free is not None:
            free -= waiting[name].reserved_bytes
            if free < 0:
                break
        admitted.append(name)
    return admitted
