"""The autoregressive method: prefill in chunks, then one token a step. mlx-lm's `generate_step`, stepwise.

Same calls in the same order as `generate_step` (mlx-lm 0.32.2), so tokens and log-probabilities are equal
bit for bit at the same chunk boundaries. The step after this one is dispatched before this one is read.
"""

from __future__ import annotations

import copy
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, cast

import mlx.core as mx

from labkit.core.errors import SessionFailed
from labkit.core.request import Request
from labkit.core.spec import MethodSpec
from labkit.core.step import Step
from labkit.core.taps import Tapped
from labkit.engine.alternatives import alternatives, read_alternatives
from labkit.engine.chunk import PART_S, Chunk, Pace, arrays_of
from labkit.engine.forward import Forward
from labkit.engine.joint import Joint, Share
from labkit.engine.method import UNFINISHED, Clock, Frozen, Unfinished
from labkit.engine.sampling import Drawer
from labkit.kv.base import Scheme, check_names, describe, kv_bytes, why_not_trim
from labkit.kv.snapshot import cache_classes, freeze, thaw
from labkit.model.taps import recording
from labkit.plan.plan import Plan

# mlx-lm returns freed buffers to the system every 256 tokens; memory figures compare only if labkit does too.
CLEAR_EVERY = 256


class Autoregressive:
    """One row, one token a step."""

    SPEC: ClassVar[MethodSpec] = MethodSpec(
        "autoregressive",
        "one token a step from the model's own logits",
        features=frozenset({"branch", "save", "tap", "sample", "batch"}),
    )

    def start(
        self, graph: Any, scheme: Scheme, plan: Plan, request: Request, clock: Clock
    ) -> AutoregressiveRun:
        return AutoregressiveRun(graph, scheme, plan, request, clock)

    def thaw(
        self, graph: Any, scheme: Scheme, plan: Plan, request: Request, clock: Clock, frozen: Frozen
    ) -> AutoregressiveRun:
        run = AutoregressiveRun(graph, scheme, plan, request, clock)
        run.thaw(frozen)
        return run

    def join(self, graph: Any, clock: Clock, *, by_name: bool, gpu: bool) -> Joint:
        return Joint(graph, clock, by_name=by_name, gpu=gpu)


class AutoregressiveRun:
    """The state of one attempt: caches, what is left to feed, and the forward in flight.

    Forward i feeds the token before token i and yields token i. `_dispatched` of them have been queued, at
    most one more than tokens are committed, so the caches hold `_prefilled + _dispatched` positions.
    """

    def __init__(self, graph: Any, scheme: Scheme, plan: Plan, request: Request, clock: Clock) -> None:
        self._graph, self._scheme, self._clock = graph, scheme, clock
        self._fed: mx.array | None = None
        self._bind(plan, request)
        self._caches: list[Any] = scheme.make(graph)
        self._rest = mx.array(request.prompt)
        self._prefilled = self._dispatched = 0
        self._tokens: list[int] = []
        self._given: tuple[int, ...] = ()
        self._in_flight: Forward | None = None
        self._chunk: Chunk | None = None
        self._pace = Pace()
        self._seen: tuple[str, ...] | None = None
        self._failure: BaseException | None = None
        self._spent = 0.0

    def _bind(self, plan: Plan, request: Request) -> None:
        # The ids that were fed are kept up only by a drawer that needs them.
        self._plan, self._request, self._fed = plan, request, None
        self._drawer = Drawer(plan.sampling, plan.seed, request.sampler, request.logits_processors)

    def advance(self) -> Step | Unfinished | None:
        if self._failure is not None:
            raise self._failure
        if len(self._tokens) == self._plan.max_tokens:
            return None
        started = self._clock()
        if self._chunk is None and self._rest.size == 1:
            return self._decode(started)
        return self._prefill(started)

    def verify(self) -> None:
        if self._prefilled + self._dispatched:
            names = self._seen or [describe(cache) for cache in self._caches]
            early = self._length < self._plan.kv_setting.start
            check_names(names, self._plan.cache_layout, self._plan.kv, early=early)

    def close(self) -> None:
        self._caches, self._in_flight, self._chunk = [], None, None

    def limit_part(self, seconds: float | None, learnt: deque[float]) -> None:
        self._pace.learnt = learnt
        self._pace.seconds = PART_S if seconds is None else min(seconds, PART_S)

    def why_not_join(self) -> str | None:
        if self._failure is not None:
            return "its next step fails"
        if self._chunk is not None or self._rest.size > 1:
            return "its prompt is not read"
        if not self._prefilled + self._dispatched:
            return "its caches are empty"
        return "it records taps" if self._plan.taps.records else None

    def lend(self) -> tuple[list[Any], Scheme]:
        caches, self._caches = self._caches, []
        return caches, self._scheme

    def take_back(self, caches: list[Any]) -> None:
        self._caches, self._seen = caches, None

    def look_at(self, names: Sequence[str]) -> None:
        self._seen = tuple(names)

    @property
    def flight(self) -> Forward | None:
        return self._in_flight

    @property
    def next_token(self) -> mx.array:
        return self._rest if self._in_flight is None else self._in_flight.token[None]

    @property
    def goes_on(self) -> bool:
        return self._failure is None and self._dispatched < self._plan.max_tokens

    @property
    def draws_plainly(self) -> bool:
        plain = self._plan.sampling.greedy and self._request.sampler is None and not self._given
        return plain and not self._drawer.needs_tokens and not self._plan.top_logprobs

    @property
    def gives_logprobs(self) -> bool:
        return self._plan.logprobs

    def feed(self) -> None:
        if self._drawer.needs_tokens:
            self._fed = mx.concatenate([self._fed_tokens(), self.next_token])
        self._dispatched += 1

    def draw(self, logits: mx.array) -> Forward:
        return self._draw(logits, None)

    def fail(self, error: BaseException) -> None:
        # As text: its frames hold the run, which would not be freed when it is dropped.
        error.add_note("".join(traceback.format_tb(error.__traceback__)))
        self._failure = error.with_traceback(None)

    def commit(self, token: int, upcoming: Forward | None, share: Share) -> Step:
        current, self._in_flight = self._in_flight, upcoming
        self._tokens.append(self._drawer.committed(token))
        position = len(self._request.prompt) + len(self._tokens)
        return self._step("decode", share.started, position, current, share=share)

    def begin(self, upcoming: Forward) -> None:
        self._in_flight = upcoming

    def fork(self, plan: Plan, request: Request) -> AutoregressiveRun:
        """A branch that shares buffers until one of the two writes to them."""
        self._settle()
        branch = copy.copy(self)
        branch._caches = copy.deepcopy(self._caches)
        branch._tokens, branch._pace = list(self._tokens), Pace()
        branch._rebind(plan, request)
        return branch

    def why_not_rewind(self, count: int) -> str | None:
        if self._restarts(count):
            return None
        left = self._prefilled + len(self._tokens) - count
        start, window = self._plan.kv_setting.start, self._plan.sliding_window
        return why_not_trim(self._caches, self._plan.layers, self._length, window, left=left, start=start)

    def rewind(self, count: int) -> None:
        self._settle()
        keep = len(self._tokens) - count
        if self._restarts(count):
            self._caches = self._scheme.make(self._graph)
        else:
            for cache in self._caches:
                cache.trim(self._dispatched - keep)
        self._tokens, self._given = self._tokens[:keep], self._given[:keep]
        self._rest = mx.array([self._sequence()[-1]])
        self._dispatched, self._in_flight, self._fed = keep, None, None

    def give(self, tokens: Sequence[int]) -> None:
        self._given = tuple(tokens)
        if self._in_flight is not None and len(self._tokens) < len(tokens):
            self._in_flight = self._draw(self._in_flight.logits, self._in_flight.tapped)

    def freeze(self) -> Frozen:
        self._settle()
        flight, chunk = self._in_flight, self._chunk
        pending = flight or chunk
        tapped = pending.tapped if pending else None
        state = {
            "caches": self._caches,
            "prefilled": self._prefilled,
            "dispatched": self._dispatched,
            "logits": flight.logits if flight else None,
            "chunk": chunk.size if chunk else 0,
            "tapped": (tapped.logits, dict(tapped.hidden), dict(tapped.attention)) if tapped else None,
        }
        arrays: dict[str, Any] = {}
        frozen = freeze(state, cache_classes(self._caches), arrays)
        return Frozen(frozen, tuple(self._tokens), arrays)

    def thaw(self, frozen: Frozen) -> None:
        """Take over the state that `freeze` gave."""
        state = thaw(frozen.state, cache_classes(self._caches), frozen.arrays)
        if len(state["caches"]) != len(self._caches):
            raise SessionFailed(f"{len(self._caches)} caches were needed", got=len(state["caches"]))
        self._caches, self._tokens = state["caches"], list(frozen.tokens)
        self._prefilled, self._dispatched = state["prefilled"], state["dispatched"]
        self._check_counts(has_logits=state["logits"] is not None)
        prompt = self._request.prompt
        self._rest = mx.array([self._sequence()[-1]] if self._dispatched else prompt[self._prefilled :])
        tapped = Tapped(*state["tapped"]) if state["tapped"] else None
        if state["chunk"]:
            self._chunk = Chunk(state["chunk"], [], tapped)
        if state["logits"] is not None:
            self._in_flight = self._draw(state["logits"], tapped)

    def _check_counts(self, *, has_logits: bool) -> None:
        """Raise ValueError for a state that no run can be in."""
        committed = len(self._tokens)
        dispatched = committed + has_logits
        if not 0 <= self._prefilled < len(self._request.prompt) or self._dispatched != dispatched:
            raise ValueError(f"{self._prefilled} and {self._dispatched} positions with {committed} tokens")

    @property
    def _length(self) -> int:
        """Positions that the caches hold."""
        return self._prefilled + self._dispatched + (self._chunk.size if self._chunk else 0)

    def _sequence(self) -> tuple[int, ...]:
        """Prompt and committed tokens."""
        return (*self._request.prompt, *self._tokens)

    def _restarts(self, count: int) -> bool:
        """Whether nothing that the caches hold would be kept, so that new caches do."""
        return self._prefilled + len(self._tokens) - count == 0

    def _rebind(self, plan: Plan, request: Request) -> None:
        """Go on under another plan; what is in flight is drawn, reported or recorded again where needed."""
        before, flight = self._request, self._in_flight
        self._bind(plan, request)
        if before.taps != request.taps and (flight or self._chunk):
            self._record_again()
        elif flight is not None and _drawn_with(before) != _drawn_with(request):
            self._in_flight = self._draw(flight.logits, flight.tapped)
        elif flight is not None and before.top_logprobs != request.top_logprobs:
            self._in_flight = replace(flight, top=self._alternatives(flight.logprobs, flight.token))

    def _record_again(self) -> None:
        """Run the forward in flight again, under other taps. Raises SessionFailed where caches keep it."""
        reason = "a chunk of prefill is half done" if self._chunk else self.why_not_rewind(0)
        if reason is not None:
            need = "caches that give back the forward under way were needed to change taps"
            raise SessionFailed(need, got=reason, next_step="name the taps when the session is made")
        self.rewind(0)

    def _settle(self) -> None:
        """Bring a chunk that was interrupted to its end; raise what is due to be raised at the next step."""
        if self._failure is not None:
            raise self._failure
        while self._chunk is not None and self._chunk.waiting:
            self._evaluate_part(self._chunk)

    def _prefill(self, started: float) -> Step | Unfinished:
        if self._chunk is None:
            self._chunk = self._begin_chunk()
        if self._chunk.waiting:
            self._evaluate_part(self._chunk)
        if self._chunk.waiting:
            self._spent += self._clock() - started
            return UNFINISHED
        chunk, self._chunk = self._chunk, None
        self._rest = self._rest[chunk.size :]
        self._prefilled += chunk.size
        mx.clear_cache()
        return self._step("prefill", started, self._prefilled, tapped=chunk.tapped)

    def _begin_chunk(self) -> Chunk:
        """Queue the forward over a chunk, to be evaluated in parts."""
        size = min(self._plan.prefill_chunk, self._rest.size - 1)
        _, tapped = self._call(self._rest[:size])
        return Chunk(size, [cache.state for cache in self._caches], tapped)

    def _evaluate_part(self, chunk: Chunk) -> None:
        self._pace.evaluate(chunk, len(self._caches), self._clock)

    def _decode(self, started: float) -> Step:
        if self._in_flight is None:
            self._in_flight = self._dispatch(self._rest)
        current = self._in_flight
        self._in_flight = self._dispatch_next(current.token)
        token = self._drawer.committed(int(cast(int, current.token.item())))
        if len(self._tokens) % CLEAR_EVERY == 0:
            mx.clear_cache()
        self._tokens.append(token)
        position = len(self._request.prompt) + len(self._tokens)
        return self._step("decode", started, position, current, tapped=current.tapped)

    def _dispatch_next(self, token: mx.array) -> Forward | None:
        """Queue the forward after `token`; a failure of it waits until the token is committed."""
        if self._dispatched == self._plan.max_tokens:
            return None
        try:
            return self._dispatch(token[None])
        except Exception as error:
            self.fail(error)
            return None

    def _dispatch(self, tokens: mx.array) -> Forward:
        """Queue one forward over `tokens` `(1,)`."""
        if self._drawer.needs_tokens:
            self._fed = mx.concatenate([self._fed_tokens(), tokens])
        logits, tapped = self._call(tokens)
        self._dispatched += 1
        forward = self._draw(logits, tapped)
        mx.async_eval(forward.token, forward.logprobs, *forward.top, *arrays_of(tapped))
        return forward

    def _call(self, tokens: mx.array) -> tuple[mx.array, Tapped | None]:
        """One forward over `tokens` `(n,)`: the last logits `(1, vocab)`, and what the taps recorded."""
        taps = self._plan.taps
        if not taps.records:
            logits = self._graph(tokens[None], cache=self._caches)
            self._scheme.settle(self._caches)
            return logits[:, -1, :], None
        with recording(self._graph, taps.hidden, taps.attention) as recorded:
            logits = self._graph(tokens[None], cache=self._caches)
        self._scheme.settle(self._caches)
        hidden = {layer: recorded.hidden[layer] for layer in taps.hidden}
        tapped = Tapped(logits[0] if taps.logits else None, hidden, recorded.attention)
        return logits[:, -1, :], tapped

    def _draw(self, logits: mx.array, tapped: Tapped | None) -> Forward:
        """Draw the token of the newest forward from its logits `(1, vocab)`."""
        index = self._dispatched - 1
        processed = self._drawer.process(logits, self._fed_tokens()) if self._drawer.needs_tokens else logits
        logprobs = processed - mx.logsumexp(processed, keepdims=True)
        given = index < len(self._given)
        token = mx.array(self._given[index]) if given else self._drawer.draw(logprobs.squeeze(0), index)
        return Forward(logits, token, logprobs, self._alternatives(logprobs, token), tapped)

    def _alternatives(self, logprobs: mx.array, token: mx.array) -> tuple[mx.array, ...]:
        count = self._plan.top_logprobs
        return alternatives(logprobs, token, count) if count else ()

    def _fed_tokens(self) -> mx.array:
        """The ids of every position that the caches hold, `(n,)`."""
        if self._fed is None:
            self._fed = mx.array(self._sequence()[: self._prefilled + self._dispatched], dtype=mx.int32)
        return self._fed

    def _step(
        self,
        kind: Literal["prefill", "decode"],
        started: float,
        position: int,
        forward: Forward | None = None,
        tapped: Tapped | None = None,
        share: Share | None = None,
    ) -> Step:
        """The step that ends now. forward: whose token it committed. share: of a step of several rows."""
        spent, self._spent = self._spent, 0.0
        seconds = spent + self._clock() - started
        tokens, logprobs, top = (), None, ()
        if forward is not None:
            tokens = (self._tokens[-1],)
            logprobs = forward.logprobs if self._plan.logprobs else None
            top = (read_alternatives(tokens[0], forward.top),) if forward.top else ()
        held, rows = (kv_bytes(self._caches), 1) if share is None else (share.kv_bytes, share.rows)
        return Step(kind, tokens, logprobs, seconds, held, rows, position, top_logprobs=top, taps=tapped)


def _drawn_with(request: Request) -> tuple[Any, ...]:
    return (request.sampling, request.seed, request.sampler, request.logits_processors)
