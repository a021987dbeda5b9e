"""Server: whatever answers several requests at a time, as a load's clients see it. Reads no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from labkit.core.arm import Arm
from labkit.core.errors import SessionFailed
from labkit.core.own_class import OwnClass, import_class
from labkit.core.request import Request
from labkit.engine.batching.batch import QUEUE, Batch
from labkit.engine.batching.session import BatchedSession
from labkit.engine.model import Model


@dataclass(frozen=True, slots=True)
class Turn:
    """What a unit of work gave. tokens: index of a request -> the ids that came. ended: requests that are
    answered with it.
    """

    tokens: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    ended: tuple[int, ...] = ()


class Server(Protocol):
    """Answers requests. A context manager that frees what it holds."""

    def submit(self, index: int, request: Request) -> None:
        """Take a request. Raises where it can never be answered."""
        ...

    def turn(self) -> Turn:
        """Do one unit of work; called only while a request is not answered. Raises what ended a request."""
        ...

    def kv_bytes(self) -> int:
        """Bytes of the caches of all rows after the last unit, with those of rows that ended in it."""
        ...

    def __enter__(self) -> Server: ...

    def __exit__(self, *_: object) -> None: ...


class EngineServer:
    """labkit's batch engine, with the policy, the cap and the KV budget of an arm."""

    def __init__(self, model: Model, arm: Arm, most: int) -> None:
        """most: requests that may wait at a time."""
        self._batch = batch_of(model, arm, most)
        self._open: dict[int, BatchedSession] = {}
        self._held: tuple[BatchedSession, ...] = ()

    def submit(self, index: int, request: Request) -> None:
        self._open[index] = self._batch.open(request)

    def turn(self) -> Turn:
        worked = self._batch.turn()
        tokens = {index: came for index, session in self._open.items() if (came := _unread(session))}
        ended = tuple(index for index, session in self._open.items() if session.finished)
        if not (worked or tokens or ended):
            got = f"none for any of {len(self._open)} requests"
            raise SessionFailed("a unit of work of the batch engine was needed", got=got)
        self._held = tuple(self._open.values())
        for index in ended:
            del self._open[index]
        return Turn(tokens, ended)

    def kv_bytes(self) -> int:
        return sum(session.kv_bytes for session in self._held)

    def __enter__(self) -> EngineServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._batch.close()


def batch_of(model: Model, arm: Arm, most: int = QUEUE) -> Batch:
    """The batch of an arm. most: requests that may wait at a time, at least."""
    stated = {"cap": arm.cap, "policy": policy_of(arm), "kv_budget_bytes": arm.kv_budget_bytes}
    options: dict[str, Any] = {name: value for name, value in stated.items() if value is not None}
    return Batch(model, queue=max(QUEUE, most), **options)


def policy_of(arm: Arm) -> Any:
    """The policy that an arm states, as the batch engine takes it: a name, or a class of one's own.

    Raises PlanRefused for a class that cannot be made here.
    """
    asked = arm.asked("policy")
    if isinstance(asked, OwnClass):
        return asked.load()
    return None if asked is None else import_class(asked) or asked


def _unread(session: BatchedSession) -> tuple[int, ...]:
    """The tokens that came since they were last asked for. Raises what ended the session, if it failed."""
    found: list[int] = []
    while session.unread:
        step = session.take()
        found += step.tokens if step is not None else ()
    if session.finished:
        session.take()
    return tuple(found)
