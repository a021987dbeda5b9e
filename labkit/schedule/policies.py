"""The policies that labkit ships. They differ in whom they admit first and in who waits for whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from labkit.schedule.policy import Decode, PolicySpec, Prefill, Work
from labkit.schedule.queue import Queue, RequestState


class FirstCome:
    """Arrival order; while prompts are read, a decode step follows every chunk."""

    SPEC: ClassVar[PolicySpec] = PolicySpec("fcfs", "arrival order; chunks and decode steps take turns")

    def admit(self, queue: Queue) -> Sequence[str]:
        return in_order(queue.waiting)

    def next(self, queue: Queue) -> Work:
        return take_turns(queue, queue.prefilling)


class ShortestPrompt:
    """The least prompt left first: the best mean TTFT, and a long prompt may wait without end."""

    SPEC: ClassVar[PolicySpec] = PolicySpec(
        "shortest-prompt", "least prompt left first; long ones may starve"
    )

    def admit(self, queue: Queue) -> Sequence[str]:
        return [r.id for r in sorted(queue.waiting, key=self._left)]

    def next(self, queue: Queue) -> Work:
        return take_turns(queue, sorted(queue.prefilling, key=self._left))

    @staticmethod
    def _left(request: RequestState) -> tuple[int, float]:
        return request.prompt_left, request.arrival_s


class DecodeFirst:
    """A prompt is read only while no row decodes: the steadiest ITL, the worst TTFT."""

    SPEC: ClassVar[PolicySpec] = PolicySpec("decode-first", "running rows are never held up by a prompt")

    def admit(self, queue: Queue) -> Sequence[str]:
        return in_order(queue.waiting)

    def next(self, queue: Queue) -> Work:
        return Decode() if queue.decoding else Prefill(queue.prefilling[0].id)


class PrefillFirst:
    """Every admitted prompt is read at once: the best TTFT, and running rows stall meanwhile."""

    SPEC: ClassVar[PolicySpec] = PolicySpec("prefill-first", "prompts are read as soon as they are admitted")

    def admit(self, queue: Queue) -> Sequence[str]:
        return in_order(queue.waiting)

    def next(self, queue: Queue) -> Work:
        return Prefill(queue.prefilling[0].id) if queue.prefilling else Decode()


class Fair:
    """Rows are dealt out among clients, chunks among rows, so that nobody waits without end.

    A client's n-th request ranks by n, its running rows counted in; among equal ranks the oldest is first.
    Since a client's rows end, its oldest request comes to rank 0 and is overtaken by none that is newer.
    Chunks go to the row that has waited longest for its turn, so a long prompt gets one in every `cap`.
    """

    SPEC: ClassVar[PolicySpec] = PolicySpec("fair", "rows dealt out among clients, chunks among rows in turn")

    def admit(self, queue: Queue) -> Sequence[str]:
        rows, ranked = Counter(r.client for r in queue.running), list[tuple[int, float, str]]()
        for request in sorted(queue.waiting, key=_arrival):
            ranked.append((rows[request.client], request.arrival_s, request.id))
            rows[request.client] += 1
        return [id for _, _, id in sorted(ranked, key=lambda r: r[:2])]

    def next(self, queue: Queue) -> Work:
        return take_turns(queue, sorted(queue.prefilling, key=lambda r: (r.served_s, r.arrival_s)))


POLICIES = (FirstCome, ShortestPrompt, DecodeFirst, PrefillFirst, Fair)


def in_order(requests: Sequence[RequestState]) -> list[str]:
    """Ids, the oldest request first."""
    return [r.id for r in sorted(requests, key=_arrival)]


def take_turns(queue: Queue, prefilling: Sequence[RequestState]) -> Work:
    """A chunk for the first of `prefilling` and a decode step in turns, where there is work of both kinds."""
    if not prefilling or (queue.decoding and queue.last == "prefill"):
        return Decode()
    return Prefill(prefilling[0].id)


def _arrival(request: RequestState) -> float:
    return request.arrival_s
