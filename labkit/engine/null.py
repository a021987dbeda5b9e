"""The null method: a session without weights, for tests and notebooks. Drives `model.null`, needs no mlx."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from labkit.core.request import Request
from labkit.core.spec import MethodSpec
from labkit.core.step import Step
from labkit.engine.method import Clock, Frozen
from labkit.model.null import NullModel
from labkit.plan.plan import Plan


class NullMethod:
    """Prefill in chunks and decode token by token on a model that only keeps time."""

    SPEC: ClassVar[MethodSpec] = MethodSpec(
        "null",
        "deterministic tokens without weights",
        provider="null",
        features=frozenset({"branch", "save"}),
    )

    def start(self, graph: Any, scheme: Any, plan: Plan, request: Request, clock: Clock) -> NullRun:
        return NullRun(graph, plan, request, clock)

    def thaw(
        self, graph: Any, scheme: Any, plan: Plan, request: Request, clock: Clock, frozen: Frozen
    ) -> NullRun:
        run = NullRun(graph, plan, request, clock)
        run.thaw(frozen)
        return run


class NullRun:
    """The state of one null attempt: the sequence so far."""

    def __init__(self, model: NullModel, plan: Plan, request: Request, clock: Clock) -> None:
        self._model, self._plan, self._clock = model, plan, clock
        self._rest = list(request.prompt)
        self._sequence: list[int] = []
        self._committed = 0
        model.begin_visit()

    def advance(self) -> Step | None:
        if self._committed == self._plan.max_tokens:
            return None
        started = self._clock()
        if len(self._rest) > 1:
            chunk = self._rest[: min(self._plan.prefill_chunk, len(self._rest) - 1)]
            self._rest = self._rest[len(chunk) :]
            self._model.prefill(chunk)
            self._sequence += chunk
            return self._step("prefill", (), None, started)
        self._sequence += self._rest
        self._rest = []
        token, logprobs = self._model.decode(self._sequence)
        self._sequence.append(token)
        self._committed += 1
        return self._step("decode", (token,), logprobs[None] if self._plan.logprobs else None, started)

    def verify(self) -> None:
        pass

    def fork(self, plan: Plan, request: Request) -> NullRun:
        branch = copy.copy(self)
        branch._plan, branch._sequence, branch._rest = plan, list(self._sequence), list(self._rest)
        return branch

    def why_not_rewind(self, count: int) -> str | None:
        return None

    def rewind(self, count: int) -> None:
        self._sequence = self._sequence[: len(self._sequence) - count]
        self._committed -= count

    def give(self, tokens: Sequence[int]) -> None:
        """Nothing: the null model's tokens are a function of the sequence."""

    def freeze(self) -> Frozen:
        tokens = tuple(self._sequence[len(self._sequence) - self._committed :])
        return Frozen({"rest": self._rest, "sequence": self._sequence, "committed": self._committed}, tokens)

    def thaw(self, frozen: Frozen) -> None:
        """Take over the state that `freeze` gave."""
        state = frozen.state
        self._rest, self._sequence = list(state["rest"]), list(state["sequence"])
        self._committed = int(state["committed"])

    def close(self) -> None:
        self._sequence = []

    def _step(
        self, kind: Literal["prefill", "decode"], tokens: tuple[int, ...], logprobs: Any, started: float
    ) -> Step:
        kv_bytes = len(self._sequence) * self._model.kv_bytes_per_token
        seconds = self._clock() - started
        return Step(kind, tokens, logprobs, seconds, kv_bytes, 1, len(self._sequence))
