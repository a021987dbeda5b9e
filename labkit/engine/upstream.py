"""The `mlx-lm` method: mlx-lm's own `generate_step` as an arm, so that it can be paired against labkit's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import mlx.core as mx

from labkit.core.request import Request
from labkit.core.spec import MethodSpec
from labkit.core.step import Step
from labkit.engine.method import Clock, Execution
from labkit.kv.base import Scheme, check_layout, is_early, kv_bytes
from labkit.plan.plan import Plan


class Upstream:
    """Greedy generation by mlx-lm itself. It prefills inside its first step, which is a decode step here."""

    SPEC: ClassVar[MethodSpec] = MethodSpec(
        "mlx-lm",
        "mlx-lm's generate_step",
        greedy_only=True,
        kv_families=frozenset({"bf16", "affine", "mixed"}),
    )

    def start(self, graph: Any, scheme: Scheme, plan: Plan, request: Request, clock: Clock) -> Execution:
        return UpstreamRun(graph, scheme, plan, request, clock)


class UpstreamRun:
    """The state of one attempt: the generator and the caches it was given."""

    def __init__(self, graph: Any, scheme: Scheme, plan: Plan, request: Request, clock: Clock) -> None:
        from mlx_lm.generate import generate_step

        self._plan, self._clock = plan, clock
        kept = plan.kv_setting.layer(0)
        self._caches: list[Any] = scheme.make(graph)
        self._position = len(request.prompt)
        self._tokens: Iterator[tuple[Any, mx.array]] = generate_step(
            mx.array(request.prompt),
            graph,
            max_tokens=plan.max_tokens,
            prompt_cache=self._caches,
            prefill_step_size=plan.prefill_chunk,
            kv_bits=None if kept is None else kept.k_bits,
            kv_group_size=64 if kept is None else kept.group_size,
            quantized_kv_start=plan.kv_setting.start,
        )

    def advance(self) -> Step | None:
        started = self._clock()
        found = next(self._tokens, None)
        if found is None:
            return None
        self._position += 1
        logprobs = found[1][None] if self._plan.logprobs else None
        seconds = self._clock() - started
        return Step("decode", (int(found[0]),), logprobs, seconds, kv_bytes(self._caches), 1, self._position)

    def verify(self) -> None:
        early = is_early(self._caches, self._plan.kv_setting)
        check_layout(self._caches, self._plan.cache_layout, self._plan.kv, early=early)

    def close(self) -> None:
        self._tokens, self._caches = iter(()), []
