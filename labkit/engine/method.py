"""Method and Execution: the contract between a session and however its tokens come to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Final, Protocol

import numpy as np

from labkit.core.request import Request
from labkit.core.spec import MethodSpec
from labkit.core.step import Step
from labkit.plan.plan import Plan

Clock = Callable[[], float]


class Unfinished(Enum):
    """What `advance` gives at a safe point inside a step."""

    UNFINISHED = "unfinished"


UNFINISHED: Final = Unfinished.UNFINISHED


@dataclass(frozen=True, slots=True)
class Frozen:
    """An execution as data: JSON values, the arrays that they name, and the tokens that it committed."""

    state: Mapping[str, Any]
    tokens: tuple[int, ...]
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)


class Execution(Protocol):
    """One running attempt. It knows nothing of the session that drives it."""

    def advance(self) -> Step | Unfinished | None:
        """Do one bounded unit of work: give the step that it completed, or None when nothing is left to do.

        UNFINISHED is a safe point within a step: the same step goes on at the next call.
        """
        ...

    def verify(self) -> None:
        """Raise SessionFailed where what ran is not what the plan said."""
        ...

    def close(self) -> None:
        """Free all state; called once."""
        ...


class Branching(Execution, Protocol):
    """An execution of a method with the feature `branch`."""

    def fork(self, plan: Plan, request: Request) -> Branching:
        """A copy that shares nothing mutable and goes on under another plan for the same prompt."""
        ...

    def why_not_rewind(self, count: int) -> str | None:
        """Why the last `count` committed tokens cannot be taken back in place; None where they can."""
        ...

    def rewind(self, count: int) -> None:
        """Take back the last `count` committed tokens, as if they had never been drawn."""
        ...

    def give(self, tokens: Sequence[int]) -> None:
        """Commit these tokens from the first on, in place of drawing them: what a replay does."""
        ...


class Saving(Execution, Protocol):
    """An execution of a method with the feature `save`."""

    def freeze(self) -> Frozen:
        """The state between two steps, from which `Method.thaw` goes on bit for bit."""
        ...


class Joining(Execution, Protocol):
    """An execution of a method with the feature `batch`."""

    def why_not_join(self) -> str | None:
        """Why its next step cannot be one with others'; None where it can."""
        ...


class Companions(Protocol):
    """Executions of one method that step together. Each is whole again once it is released."""

    def __len__(self) -> int: ...

    def __contains__(self, run: object) -> bool: ...

    def add(self, runs: Sequence[Any]) -> None:
        """Let these step with the others. Raises SessionFailed where they cannot, and changes nothing."""
        ...

    def allow_padding(self, allowed: bool) -> None:
        """Whether executions of different lengths may take as much room as the longest of them."""
        ...

    def release(self, run: Any) -> None:
        """Let one go on alone, as it is."""
        ...

    def discard(self, runs: Sequence[Any]) -> None:
        """Forget executions that have ended, with their state."""
        ...

    def wait(self, runs: Sequence[Any]) -> None:
        """Return once what these, here or not, have queued is computed.

        Where that fails, the next step of each of them raises it, since nothing says whose it was.
        """
        ...

    def advance(self) -> Sequence[tuple[Any, Step | Exception]]:
        """One step of each: what it committed, or what it raised, which ends that one alone.

        One that has nothing more to do in company is not here any more afterwards.
        """
        ...

    def limit_part(self, run: Any, seconds: float | None) -> None:
        """How long a unit of work within a step of one may take, about, as others wait; None for no others.

        It may be one that is not here yet.
        """
        ...

    def inspect(self, run: Any) -> None:
        """Let one look at its caches as they are here, for its `verify`."""
        ...

    def clear(self) -> None:
        """Forget all of them."""
        ...


class JoiningMethod(Protocol):
    """A method with the feature `batch`."""

    def join(self, graph: Any, clock: Clock, *, by_name: bool, gpu: bool) -> Companions:
        """Nobody yet. by_name: whether attention takes whatever a cache gives (`Profile.quantizes`).

        gpu: whether the device is one, where few large calls beat many small ones.
        """
        ...


class Method(Protocol):
    """How steps come to be. `graph` is whatever the model's provider made; `scheme` is a kv.Scheme."""

    SPEC: ClassVar[MethodSpec]

    def start(self, graph: Any, scheme: Any, plan: Plan, request: Request, clock: Clock) -> Execution: ...


class SavingMethod(Method, Protocol):
    """A method with the feature `save`."""

    def thaw(
        self, graph: Any, scheme: Any, plan: Plan, request: Request, clock: Clock, frozen: Frozen
    ) -> Execution:
        """Go on from what `freeze` gave. Raises SessionFailed where it is not of this plan."""
        ...
