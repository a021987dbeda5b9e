"""Session: one completion attempt, steppable. Knows no model class, method or cache class."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from labkit.core.errors import SessionFailed
from labkit.core.request import Request
from labkit.core.spec import Feature
from labkit.core.step import Step
from labkit.engine.host import Host
from labkit.engine.method import Branching, Execution, Unfinished
from labkit.engine.replay import replay
from labkit.engine.session_file import SavedSession, write_session
from labkit.engine.shield import uninterrupted
from labkit.engine.state import ENDED, Completion, FinishReason, State
from labkit.plan.plan import Plan

__all__ = ["Completion", "FinishReason", "Session", "State"]


# The fields of a request in which a branch may differ from its trunk.
CHANGES = (
    *("seed", "sampling", "max_tokens", "stop", "stop_tokens", "logprobs", "top_logprobs"),
    *("sampler", "logits_processors", "taps"),
)


class Session:
    """Drives one execution step by step and keeps what it committed.

    Use `step()` for one bounded unit of work, `steps()` to iterate, `run()` to finish; `fork()`, `rewind()`
    and `save()` between steps, all on the thread of its first step; `cancel()` and `close()` on any. It is a
    context manager; `close()` is idempotent and frees the caches, and so does dropping it. What was committed
    survives cancel and failure.
    """

    def __init__(self, host: Host, plan: Plan, request: Request) -> None:
        self.plan, self.request = plan, request
        self.state = State.CREATED
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self.kv_bytes = 0
        self._host = host
        self._execution: Execution | None = None
        self._stream = host.stream(request)
        self._tokens: list[int] = []
        self._snapshots: dict[int, Branching] = {}
        self._busy = self._closed = self._cancelled = False
        self._thread: int | None = None
        self._lock = threading.RLock()

    @classmethod
    def restored(cls, host: Host, plan: Plan, saved: SavedSession) -> Session:
        """A session that goes on from a file. Raises SessionFailed where its state is not of this plan."""
        session = cls(host, plan, saved.request)
        session._continue(saved.tokens)
        if saved.frozen is not None:
            session._execution = host.thaw(plan, saved.request, saved.frozen)
        session.state, session.kv_bytes = State(saved.state), saved.kv_bytes
        return session

    @property
    def tokens(self) -> tuple[int, ...]:
        """Token ids committed so far, a stop token included."""
        return tuple(self._tokens)

    @property
    def text(self) -> str:
        """What has become printable so far: nothing of a stop string, no stop token, no half character.

        At the end everything that was committed is shown, broken characters too.
        """
        return self._stream.text

    @property
    def finished(self) -> bool:
        return self.state in ENDED

    def prepare(self) -> None:
        """Make the caches without running anything; `step()` does it where it has not been done."""
        if self.state is State.CREATED:
            with self._at_work():
                self._prepare()

    def step(self) -> Step | None:
        """Do one bounded unit of work and return it; None once the session has ended.

        Ctrl-C is honoured at the next safe point: after the step, which stays committed, or within a chunk of
        prefill, which then goes on at the next call. What the work raised is raised, after the session turned
        `failed`; what a tap's `call` raised is raised too, and the session can go on. Raises SessionFailed on
        a session that was closed before it ended.
        """
        if self.finished:
            return None
        with self._at_work():
            step = self._advance()
            if step is not None and self.plan.taps.call is not None:
                self.plan.taps.call(step)
        return step

    def steps(self) -> Iterator[Step]:
        """Iterate over the remaining steps."""
        while (step := self.step()) is not None:
            yield step

    def run(self, until: Callable[[Step], bool] | None = None) -> Completion:
        """Step to the end, or until `until(step)` is true; the session can then go on."""
        for step in self.steps():
            if until is not None and until(step):
                break
        return self.completion()

    def completion(self) -> Completion:
        """What is committed so far."""
        prompt = self.plan.prompt_tokens
        return Completion(self.text, self.tokens, self.finish_reason, prompt, self.stop_reason)

    def fork(self, **changes: Any) -> Session:
        """A branch that goes on by itself from here; what is equal is shared until one of the two writes.

        changes: fields of the request that the branch has otherwise, those of CHANGES; the prompt, the KV
        scheme and the method stay. Raises SessionFailed once the session has ended or where its method cannot
        branch, PlanRefused for changes that cannot run.
        """
        self._needs("branch", "fork")
        unfit = set(changes) - set(CHANGES)
        if unfit:
            need = "changes of how the branch goes on were needed"
            raise SessionFailed(need, got=", ".join(sorted(unfit)), options=CHANGES)
        request = self.request.changed(**changes)
        branch = self._branch(self._host.resolve(request), request)
        branch._continue(self.tokens)
        with self._at_work():
            if self._execution is not None:
                branch._execution = cast(Branching, self._execution).fork(branch.plan, request)
                branch._thread = self._thread
            branch._snapshots = {at: kept.fork(branch.plan, request) for at, kept in self._snapshots.items()}
        branch.state, branch.kv_bytes = self.state, self.kv_bytes
        return branch

    def snapshot(self) -> None:
        """Keep the caches as they are now, for a `rewind(replay=True)` that comes back here or later.

        Each costs the memory of a cache as soon as the session goes on.
        """
        self._needs("branch", "snapshot")
        with self._at_work():
            if self._execution is not None and len(self._tokens) not in self._snapshots:
                kept = cast(Branching, self._execution).fork(self.plan, self.request)
                self._snapshots[len(self._tokens)] = kept

    def rewind(self, tokens: int, *, replay: bool = False) -> None:
        """Take back the last `tokens` committed tokens, as if they had never been drawn.

        replay: where the caches give nothing back (recurrent layers, a sliding window that was passed), run
        again from the newest snapshot that is early enough, or from the prompt; the result is the same bit
        for bit. Raises SessionFailed with the reason where it cannot, and the session stays as it was.
        """
        self._needs("branch", "rewind")
        if isinstance(tokens, bool) or not isinstance(tokens, int) or not 0 <= tokens <= len(self._tokens):
            need = f"from 0 to {len(self._tokens)} committed tokens were needed to take back"
            raise SessionFailed(need, got=tokens)
        with self._at_work():
            if tokens:
                self._take_back(tokens, replay)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the session to a file, from which `labkit.resume` goes on bit for bit in another process.

        Raises SessionFailed once the session has ended, where its method cannot be saved, and for samplers,
        processors and tap calls of one's own, which no file holds.
        """
        self._needs("save", "save")
        with self._at_work():
            return write_session(self, self._execution, self._host.identity(), Path(path))

    def cancel(self) -> None:
        """End the session at the next safe point; what was committed stays. No effect once it has ended.

        From within a step (a tap, a sampler, another thread) that is the end of the step or of the part of it
        under way.
        """
        with self._lock:
            self._cancelled = True
            self._honour()

    def close(self) -> None:
        """Free the caches. Idempotent; a session that had not ended cannot go on."""
        with self._lock:
            self._closed = True
            self._honour()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        done = f"{len(self._tokens)}/{self.plan.max_tokens} tokens"
        return f"<Session {self.plan.model} kv={self.plan.kv} {self.state} {done}>"

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Refuse a call from within a step; honour a cancel or close that came meanwhile."""
        with self._lock:
            self._begin_work()
        try:
            yield
        finally:
            with self._lock:
                self._busy = False
                self._honour()

    def _begin_work(self) -> None:
        if self._busy:
            raise SessionFailed("a session between two steps was needed", got="a call from within a step")
        if self._thread not in (None, threading.get_ident()):
            raise SessionFailed(
                "the thread that started the session was needed, since its arrays belong to it",
                got="another thread",
                next_step="save it there and resume it here",
            )
        self._check_open()
        self._busy, self._thread = True, threading.get_ident()

    def _check_open(self) -> None:
        if self._closed:
            step = "make a new session"
            raise SessionFailed("an open session was needed", got="a closed one", next_step=step)

    def _honour(self) -> None:
        """Do what was asked for from within a step, or from another thread, once no step is under way."""
        if self._busy:
            return
        if self._cancelled and not self.finished:
            self._end(State.CANCELLED, "cancelled")
        if self._closed:
            self._free()

    def _prepare(self) -> None:
        self.state = State.PREPARING
        with uninterrupted(signals=(signal.SIGINT,)), self._failing():
            self._execution = self._host.start(self.plan, self.request)
            self.state = State.QUEUED

    def _advance(self) -> Step | None:
        if self.state is State.CREATED:
            self._prepare()
        while not (self._cancelled or self._closed):
            # A unit torn by Ctrl-C would have filled the caches and committed nothing.
            with uninterrupted(signals=(signal.SIGINT,)), self._failing():
                self.state = State.RUNNING
                assert self._execution is not None
                step = self._execution.advance()
                if step is None:
                    self._finish("length")
                    return None
                if not isinstance(step, Unfinished):
                    return self._commit(step)
        return None

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """End the session as failed where the work in the block raises."""
        try:
            yield
        except BaseException:
            self._end(State.FAILED, "failed")
            raise

    def _commit(self, step: Step) -> Step:
        """Keep a step's tokens up to the first that ends the completion; give the step as it was kept."""
        self.kv_bytes = step.kv_bytes
        text, kept = "", 0
        reason: FinishReason | None = None
        for token in step.tokens:
            part, reason = self._commit_token(token)
            text, kept = text + part, kept + 1
            if reason:
                text += self._stream.finish()
                self._finish(self._reason_of(reason))
                break
        if kept < len(step.tokens):
            logprobs = None if step.logprobs is None else step.logprobs[:kept]
            cut, top = len(step.tokens) - kept, step.top_logprobs[:kept]
            tokens, position = step.tokens[:kept], step.position - cut
            step = replace(step, tokens=tokens, logprobs=logprobs, top_logprobs=top, position=position)
        return replace(step, text=text) if step.tokens else step

    def _commit_token(self, token: int) -> tuple[str, FinishReason | None]:
        """Keep one token: the text that it made printable, and the reason where it ends the completion."""
        self._tokens.append(token)
        if token in self.plan.stop_tokens:
            self.stop_reason = token
            return "", "stop"
        text = self._stream.push(token)
        if self._stream.stopped is not None:
            return text, "stop"
        return text, "length" if len(self._tokens) >= self.plan.max_tokens else None

    def _reason_of(self, reason: FinishReason) -> FinishReason:
        """The reason once the text is whole: what was held back may hold a stop string."""
        if self._stream.stopped is None:
            return reason
        self.stop_reason = self._stream.stopped
        return "stop"

    def _needs(self, feature: Feature, what: str) -> None:
        if self.finished:
            need = f"a session that has not ended was needed to {what}"
            next_step = f"make it again, and {what} before its end: what has ended is final"
            raise SessionFailed(need, got=f"a {self.state} one", next_step=next_step)
        if feature not in self.plan.features:
            raise SessionFailed(f"a method that can {what} was needed", got=self.plan.method)

    def _branch(self, plan: Plan, request: Request) -> Session:
        """A session of the same kind for another request."""
        return Session(self._host, plan, request)

    def _continue(self, tokens: tuple[int, ...]) -> None:
        """Hold these tokens as committed. Raises SessionFailed where they end the completion already."""
        stream = self._host.stream(self.request, tokens)
        ends = [token for token in tokens if token in self.plan.stop_tokens]
        if len(tokens) >= self.plan.max_tokens or stream.stopped is not None or ends:
            stop = ends[0] if ends else stream.stopped
            need = "a completion that goes on after what is committed was needed"
            got = f"{len(tokens)} tokens with max_tokens={self.plan.max_tokens} and the stop {stop!r} in them"
            raise SessionFailed(need, got=got, next_step="a larger max_tokens, another stop, or rewind first")
        self._tokens, self._stream = list(tokens), stream

    def _take_back(self, count: int, may_replay: bool) -> None:
        execution = cast(Branching, self._execution)
        keep = len(self._tokens) - count
        reason = execution.why_not_rewind(count)
        if reason is None:
            execution.rewind(count)
        elif not may_replay:
            step = f"rewind({count}, replay=True), which runs again from a snapshot() or the prompt"
            raise SessionFailed("caches that give positions back were needed", got=reason, next_step=step)
        else:
            self._execution = self._replayed(keep)
            execution.close()
        self._continue(self.tokens[:keep])
        for at in [at for at in self._snapshots if at > keep]:
            self._snapshots.pop(at).close()

    def _replayed(self, keep: int) -> Branching:
        """An execution that has committed the first `keep` tokens, run again from the newest snapshot."""
        at = max((at for at in self._snapshots if at <= keep), default=0)
        snapshot = self._snapshots.get(at)
        if snapshot is None:
            run = cast(Branching, self._host.start(self.plan, self.request))
        else:
            run = snapshot.fork(self.plan, self.request)
        return replay(run, at, self.tokens[:keep], lambda: self._cancelled or self._closed)

    def _finish(self, reason: FinishReason) -> None:
        self.state = State.SETTLING
        assert self._execution is not None
        self._execution.verify()
        if self._cancelled:
            self._end(State.CANCELLED, "cancelled")
        else:
            self._end(State.COMPLETED, reason)

    def _end(self, state: State, reason: FinishReason) -> None:
        self.state, self.finish_reason = state, reason
        if state is not State.COMPLETED:
            self.stop_reason = None
        try:
            self._stream.finish()
        finally:
            self._free()

    def _free(self) -> None:
        """Close every execution once."""
        held = [*self._snapshots.values(), *([] if self._execution is None else [self._execution])]
        self._snapshots, self._execution = {}, None
        for execution in held:
            execution.close()
