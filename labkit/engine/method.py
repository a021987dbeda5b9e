"""Method and Execution: the contract between a session and however its tokens come to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from labkit.core.request import Request
from labkit.core.spec import MethodSpec
from labkit.core.step import Step
from labkit.plan.plan import Plan

Clock = Callable[[], float]


class Execution(Protocol):
    """One running attempt. It knows nothing of the session that drives it."""

    def advance(self) -> Step | None:
        """Do one bounded unit of work; None when there is nothing left to do."""
        ...

    def verify(self) -> None:
        """Raise SessionFailed where what ran is not what the plan said."""
        ...

    def close(self) -> None:
        """Free all state; called once."""
        ...


class Method(Protocol):
    """How steps come to be. `graph` is whatever the model's provider made; `scheme` is a kv.Scheme class."""

    SPEC: ClassVar[MethodSpec]

    def start(self, graph: Any, scheme: Any, plan: Plan, request: Request, clock: Clock) -> Execution: ...
