"""Row: one request of a batch, as the execution that its session drives. Knows no other row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Protocol, cast

from labkit.core.request import Request
from labkit.core.step import Step
from labkit.engine.method import Branching, Execution, Frozen, Saving, Unfinished
from labkit.plan.plan import Plan
from labkit.schedule.queue import RequestState


class Place(Enum):
    """Where a row is: queued, on the device, held back until its reader comes, or ended."""

    LOOSE = "loose"
    WAITING = "waiting"
    RUNNING = "running"
    PARKED = "parked"
    DONE = "done"


class Home(Protocol):
    """Whoever runs a row's steps, with others where they can."""

    def bring_home(self, row: Row) -> None:
        """Let the row's run be whole and alone, wherever it is."""
        ...

    def inspect(self, row: Row) -> None:
        """Raise SessionFailed where the row's caches are not what its plan said."""
        ...

    def forget(self, row: Row) -> None:
        """Free the row at the next safe point; it has ended."""
        ...


class Row:
    """An execution whose steps are made elsewhere: what was made for it is in `made` until its session asks.

    A loose row, one that was never submitted (a snapshot, a replay), makes its steps itself.
    """

    def __init__(self, run: Execution, plan: Plan, request: Request) -> None:
        self.run, self.plan, self.request = run, plan, request
        self.place = Place.LOOSE
        self.home: Home | None = None
        self.state = RequestState("", 0.0, len(request.prompt), plan.max_tokens)
        self.made: Step | BaseException | None = None
        self.reserved_bytes = 0
        self.token_s: list[float] = []
        self.admitted_s: float | None = None

    def advance(self) -> Step | Unfinished | None:
        if self.place is Place.LOOSE:
            step = self.run.advance()
            if isinstance(step, Step):
                self.count(step)
            return step
        made, self.made = self.made, None
        if isinstance(made, BaseException):
            raise made
        return made

    @property
    def holds_bytes(self) -> bool:
        """Whether its caches may hold something, so that its bytes are taken."""
        return self.admitted_s is not None or bool(self.state.prefilled or self.state.generated)

    def count(self, step: Step, now_s: float = 0.0) -> None:
        """Keep what a policy sees of this row up to date."""
        state, prompt = self.state, self.state.prompt_tokens
        read = step.position if step.kind == "prefill" else max(prompt - 1, 0)
        generated = state.generated + len(step.tokens)
        self.state = replace(
            state, prefilled=read, generated=generated, kv_bytes=int(step.kv_bytes), served_s=now_s
        )

    def verify(self) -> None:
        if self.home is not None:
            self.home.inspect(self)
        self.run.verify()

    def close(self) -> None:
        if self.home is None:
            self.run.close()
        else:
            self.home.forget(self)

    def fork(self, plan: Plan, request: Request) -> Row:
        branch = Row(cast(Branching, self._alone()).fork(plan, request), plan, request)
        branch.state = replace(self.state, id="", max_tokens=plan.max_tokens, reserved_bytes=0)
        return branch

    def why_not_rewind(self, count: int) -> str | None:
        return cast(Branching, self._alone()).why_not_rewind(count)

    def rewind(self, count: int) -> None:
        cast(Branching, self._alone()).rewind(count)
        kept = self.state.generated - count
        self.state = replace(self.state, generated=kept)
        del self.token_s[kept:]

    def give(self, tokens: Sequence[int]) -> None:
        cast(Branching, self._alone()).give(tokens)

    def freeze(self) -> Frozen:
        return cast(Saving, self._alone()).freeze()

    def _alone(self) -> Any:
        if self.home is not None:
            self.home.bring_home(self)
        return self.run
