"""Admission: a byte budget for keys and values. Knows what a request may grow to, not what runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from labkit.core.errors import LabkitError
from labkit.schedule.queue import RequestState


@dataclass(frozen=True, slots=True)
class Budget:
    """limit_bytes: for the caches of all rows. bytes_at: tokens of one row -> bytes its caches hold then.

    A row is admitted with what it can grow to at prompt + max_tokens, so no row has to be thrown out later.
    most_at: the same until its first token, where more may lie there for a while, as a chunk of the prompt
    does that is not quantized yet; None where that is no more.
    """

    limit_bytes: int
    bytes_at: Callable[[int], float]
    most_at: Callable[[int], float] | None = None

    def __post_init__(self) -> None:
        if self.limit_bytes <= 0:
            raise LabkitError("a KV budget above 0 bytes was needed", got=self.limit_bytes)

    def reserve(self, request: RequestState) -> RequestState:
        """The request with `reserved_bytes` filled in, by how far it is."""
        return replace(request, reserved_bytes=self.needed(request))

    def needed(self, request: RequestState) -> int:
        """Whole bytes that a request may take from where it is to its end."""
        tokens = request.prompt_tokens + request.max_tokens
        most = self.most_at(tokens) if self.most_at is not None and not request.generated else 0
        return max(self.held(tokens), _whole(most))

    def held(self, tokens: int) -> int:
        """Whole bytes of a row at a number of tokens, never fewer than `bytes_at` says."""
        return _whole(self.bytes_at(tokens))

    def refusal(self, request: RequestState) -> str | None:
        """Why a request can never run, even alone; None where it can."""
        needed, later = self.needed(request), self.held(request.prompt_tokens + request.max_tokens)
        if needed <= self.limit_bytes:
            return None
        asked = f"{request.prompt_tokens} prompt and {request.max_tokens} new tokens"
        while_read = f" while the prompt is read, {later} later" if later < needed else ""
        return f"{asked} may take {needed} bytes{while_read}, and the KV budget is {self.limit_bytes}"

    def free(self, running: Sequence[RequestState]) -> int:
        """Bytes that no running row has reserved."""
        return self.limit_bytes - sum(r.reserved_bytes for r in running)


def fitting(
    wanted: Sequence[str], reserved: Mapping[str, int], *, rows: int, free_bytes: int | None
) -> list[str]:
    """The first of the wanted ids, up to the first that has no row or no bytes.

    reserved: bytes of each. rows, free_bytes: what there is of each; None for no limit.
    """
    free, admitted = free_bytes, list[str]()
    for name in wanted[: max(rows, 0)]:
        if free is not None:
            free -= reserved[name]
            if free < 0:
                break
        admitted.append(name)
    return admitted


def _whole(number: float) -> int:
    return -int(-number // 1)
