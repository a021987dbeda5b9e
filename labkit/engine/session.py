"""Session: one completion attempt, steppable. Knows no model class, method or cache class."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from types import TracebackType
from typing import Literal

from labkit.core.errors import SessionFailed
from labkit.core.step import Step
from labkit.engine.method import Execution
from labkit.engine.shield import uninterrupted
from labkit.plan.plan import Plan

FinishReason = Literal["stop", "length", "cancelled", "failed"]


class State(StrEnum):
    """Where a session is in its life."""

    CREATED = "created"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Completion:
    """What a session committed. text leaves out the stop token; tokens keep it."""

    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason | None
    prompt_tokens: int


class Session:
    """Drives one execution step by step and keeps what it committed.

    Use `step()` for one bounded unit of work, `steps()` to iterate, `run()` to finish. It is a context
    manager; `close()` is idempotent and frees the caches. What was committed survives cancel and failure.
    """

    def __init__(self, plan: Plan, execution: Execution, decode: Callable[[list[int]], str]) -> None:
        self.plan = plan
        self.state = State.CREATED
        self.finish_reason: FinishReason | None = None
        self.kv_bytes = 0
        self._execution: Execution | None = execution
        self._decode = decode
        self._tokens: list[int] = []

    @property
    def tokens(self) -> tuple[int, ...]:
        """Token ids committed so far, a stop token included."""
        return tuple(self._tokens)

    @property
    def text(self) -> str:
        """The committed tokens as text, without the stop token that ended them."""
        stopped = self.finish_reason == "stop"
        return self._decode(self._tokens[:-1] if stopped else self._tokens)

    @property
    def finished(self) -> bool:
        return self.state in (State.COMPLETED, State.CANCELLED, State.FAILED)

    def step(self) -> Step | None:
        """Do one bounded unit of work and return it; None once the session has ended.

        Ctrl-C is honoured after the step, which stays committed, so the session can go on. Raises whatever
        the work raised, after the session turned `failed`, and SessionFailed on a session that was closed
        before it ended.
        """
        if self.finished:
            return None
        if self._execution is None:
            raise SessionFailed(
                "an open session was needed", got="a closed one", next_step="make a new session"
            )
        self.state = State.RUNNING
        # A step torn by Ctrl-C would have filled the caches and committed nothing.
        with uninterrupted(signals=(signal.SIGINT,)):
            return self._advance(self._execution)

    def steps(self) -> Iterator[Step]:
        """Iterate over the remaining steps; the session is closed when it ends."""
        while (step := self.step()) is not None:
            yield step

    def run(self, until: Callable[[Step], bool] | None = None) -> Completion:
        """Step to the end, or until `until(step)` is true; the session can then go on."""
        for step in self.steps():
            if until is not None and until(step):
                break
        return Completion(self.text, self.tokens, self.finish_reason, self.plan.prompt_tokens)

    def cancel(self) -> None:
        """End the session at this safe point; what was committed stays. No effect once it has ended."""
        if not self.finished:
            self._end(State.CANCELLED, "cancelled")

    def close(self) -> None:
        """Free the caches. Idempotent; a session that had not ended cannot go on."""
        if self._execution is not None:
            execution, self._execution = self._execution, None
            execution.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        done = f"{len(self._tokens)}/{self.plan.max_tokens} tokens"
        return f"<Session {self.plan.model} kv={self.plan.kv} {self.state} {done}>"

    def _advance(self, execution: Execution) -> Step | None:
        try:
            step = execution.advance()
            if step is None:
                self._finish("length")
                return None
            return self._commit(step)
        except BaseException:
            self._end(State.FAILED, "failed")
            raise

    def _commit(self, step: Step) -> Step:
        """Keep a step's tokens up to the first stop token; give the step as it was kept."""
        self.kv_bytes = step.kv_bytes
        stops = self.plan.stop_tokens
        end = next((i for i, token in enumerate(step.tokens, 1) if token in stops), None)
        if end is not None and end < len(step.tokens):
            logprobs = None if step.logprobs is None else step.logprobs[:end]
            step = replace(step, tokens=step.tokens[:end], logprobs=logprobs)
        self._tokens.extend(step.tokens)
        if end is not None:
            self._finish("stop")
        elif len(self._tokens) >= self.plan.max_tokens:
            self._finish("length")
        return step

    def _finish(self, reason: FinishReason) -> None:
        assert self._execution is not None
        self._execution.verify()
        self._end(State.COMPLETED, reason)

    def _end(self, state: State, reason: FinishReason) -> None:
        self.state, self.finish_reason = state, reason
        self.close()
