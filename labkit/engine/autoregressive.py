"""The autoregressive method: prefill in chunks, then one token a step. mlx-lm's `generate_step`, stepwise.

Same calls in the same order as `generate_step` (mlx-lm 0.32.2), so tokens and log-probabilities are equal
bit for bit at the same chunk boundaries. The step after this one is dispatched before this one is read.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

import mlx.core as mx

from labkit.core.request import Request
from labkit.core.spec import MethodSpec
from labkit.core.step import Step
from labkit.engine.method import Clock, Execution
from labkit.engine.sampling import draw
from labkit.kv.base import Scheme, check_layout, kv_bytes
from labkit.plan.plan import Plan

# mlx-lm returns freed buffers to the system every 256 tokens; memory figures compare only if labkit does too.
CLEAR_EVERY = 256


class Autoregressive:
    """One row, one token a step."""

    SPEC: ClassVar[MethodSpec] = MethodSpec("autoregressive", "one token a step from the model's own logits")

    def start(self, graph: Any, scheme: Scheme, plan: Plan, request: Request, clock: Clock) -> Execution:
        return AutoregressiveRun(graph, scheme, plan, request, clock)


class AutoregressiveRun:
    """The state of one attempt: caches, what is left of the prompt, and the step in flight."""

    def __init__(self, graph: Any, scheme: Scheme, plan: Plan, request: Request, clock: Clock) -> None:
        self._graph, self._scheme, self._plan, self._clock = graph, scheme, plan, clock
        self._caches: list[Any] = scheme.make(graph)
        self._rest = mx.array(request.prompt)
        self._position = 0
        self._dispatched = 0
        self._committed = 0
        self._in_flight: tuple[mx.array, mx.array] | None = None

    def advance(self) -> Step | None:
        if self._committed == self._plan.max_tokens:
            return None
        started = self._clock()
        return self._prefill(started) if self._rest.size > 1 else self._decode(started)

    def verify(self) -> None:
        if self._position:
            check_layout(self._caches, self._plan.cache_layout, self._plan.kv)

    def close(self) -> None:
        self._caches, self._in_flight = [], None

    def _prefill(self, started: float) -> Step:
        count = min(self._plan.prefill_chunk, self._rest.size - 1)
        self._graph(self._rest[:count][None], cache=self._caches)
        self._scheme.settle(self._caches)
        mx.eval([cache.state for cache in self._caches])
        self._rest = self._rest[count:]
        self._position += count
        mx.clear_cache()
        return self._step("prefill", (), None, started)

    def _decode(self, started: float) -> Step:
        if self._in_flight is None:
            self._in_flight = self._dispatch(self._rest)
            self._position += 1
        token, logprobs = self._in_flight
        more = self._dispatched < self._plan.max_tokens
        self._in_flight = self._dispatch(token[None]) if more else None
        committed = (int(cast(int, token.item())),)
        if self._committed % CLEAR_EVERY == 0:
            mx.clear_cache()
        self._committed += 1
        kept = logprobs[None] if self._plan.logprobs else None
        return self._step("decode", committed, kept, started)

    def _dispatch(self, tokens: mx.array) -> tuple[mx.array, mx.array]:
        """Queue one forward over `tokens` `(1,)`; give its token `()` and log-probabilities `(vocab,)`."""
        logits = self._graph(tokens[None], cache=self._caches)[:, -1, :]
        self._scheme.settle(self._caches)
        logprobs = (logits - mx.logsumexp(logits, keepdims=True)).squeeze(0)
        token = draw(logprobs, self._plan.sampling, self._plan.seed, self._dispatched)
        mx.async_eval(token, logprobs)
        self._dispatched += 1
        return token, logprobs

    def _step(self, kind: Any, tokens: tuple[int, ...], logprobs: mx.array | None, started: float) -> Step:
        return Step(
            kind=kind,
            tokens=tokens,
            logprobs=logprobs,
            seconds=self._clock() - started,
            kv_bytes=kv_bytes(self._caches),
            rows=1,
            position=self._position + self._committed,
        )
