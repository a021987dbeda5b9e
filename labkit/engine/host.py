"""Host: what a session needs of whoever opened it, a model in all cases but tests'."""

from __future__ import annotations

from typing import Any, Protocol

from labkit.core.request import Request
from labkit.engine.method import Execution, Frozen
from labkit.engine.text import TextStream
from labkit.plan.plan import Plan


class Host(Protocol):
    """Whoever opens sessions: a model."""

    def resolve(self, request: Request) -> Plan:
        """The plan of a request. Raises PlanRefused with every reason where it cannot run."""
        ...

    def start(self, plan: Plan, request: Request) -> Execution: ...

    def thaw(self, plan: Plan, request: Request, frozen: Frozen) -> Execution: ...

    def stream(self, request: Request, tokens: tuple[int, ...] = ()) -> TextStream:
        """The text of a completion that has these tokens already."""
        ...

    def identity(self) -> dict[str, Any]:
        """What a saved session says of its model: name, source and fingerprint."""
        ...
