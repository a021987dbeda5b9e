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
        # Bytes that its caches may take until its first token, and from then on.
        self.most_bytes = self.later_bytes = 0
        self.kept_bytes = 0
        self._drew = self._of_one_that_holds = False
        self._shown: tuple[RequestState, RequestState] | None = None
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
        begun = bool(self.state.prefilled or self.state.generated)
        return self.admitted_s is not None or self._of_one_that_holds or begun

    @property
    def reserved_bytes(self) -> int:
        """Of the KV budget: what its caches may grow to from here, and its snapshots."""
        return (self.later_bytes if self._drew else self.most_bytes) + self.kept_bytes

    def shown(self, reserved_bytes: int) -> RequestState:
        """The row as a policy may have it: a copy."""
        known = self._shown
        if known is None or known[0] is not self.state or known[1].reserved_bytes != reserved_bytes:
            known = self._shown = (self.state, replace(self.state, reserved_bytes=reserved_bytes))
        return known[1]

    def count(self, step: Step, now_s: float = 0.0) -> None:
        """Keep what a policy sees of this row up to date."""
        state, prompt = self.state, self.state.prompt_tokens
        read = step.position if step.kind == "prefill" else max(prompt - 1, 0)
        generated = state.generated + len(step.tokens)
        self.state = replace(
            state, prefilled=read, generated=generated, kv_bytes=int(step.kv_bytes), served_s=now_s
        )
        self._drew |= generated > 0

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
        branch.state = replace(self.state, id="", max_tokens=plan.max_tokens)
        branch.most_bytes, branch.later_bytes, branch._drew = self.most_bytes, self.later_bytes, self._drew
        branch._of_one_that_holds = self.holds_bytes
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
