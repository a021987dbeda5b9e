"""The `slowed` method: autoregressive decoding slowed by a known share, to test a bench with."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, ClassVar

import mlx.core as mx

from labkit.core.request import Request
from labkit.core.spec import MethodSpec
from labkit.core.step import Step
from labkit.engine.autoregressive import Autoregressive
from labkit.engine.method import Clock, Execution, Unfinished
from labkit.kv.base import Scheme
from labkit.plan.plan import Plan

# A sleep may overshoot by about this; the rest is waited for by looking at the clock.
OVERSHOOT_S = 0.002


class Slowed:
    """`slowed:0.10` takes 10% longer for every step, prefill and decode; its tokens are the same.

    A positive control: an effect that is known before it is measured. The step in flight is waited for before
    the delay begins, since it would otherwise go on during it, so no step overlaps with the host's work on
    the next: the arm that differs by the share alone is `slowed:0`, not `autoregressive`.
    """

    SPEC: ClassVar[MethodSpec] = MethodSpec(
        "slowed", "autoregressive, each step slowed by a share of its time", argument=True
    )

    def __init__(self, share: float) -> None:
        self._share = share

    def start(self, graph: Any, scheme: Scheme, plan: Plan, request: Request, clock: Clock) -> Execution:
        return SlowedRun(Autoregressive().start(graph, scheme, plan, request, clock), clock, self._share)


class SlowedRun:
    """One attempt: the execution that does the work, and how much longer each of its steps takes."""

    def __init__(self, inner: Execution, clock: Clock, share: float) -> None:
        self._inner, self._clock, self._share = inner, clock, share

    def advance(self) -> Step | Unfinished | None:
        started = self._clock()
        step = self._inner.advance()
        mx.synchronize()
        ended = self._clock()
        self._wait(ended + (ended - started) * self._share)
        return replace(step, seconds=self._clock() - started) if isinstance(step, Step) else step

    def verify(self) -> None:
        self._inner.verify()

    def close(self) -> None:
        self._inner.close()

    def _wait(self, until: float) -> None:
        time.sleep(max(0.0, until - self._clock() - OVERSHOOT_S))
        while self._clock() < until:
            pass
