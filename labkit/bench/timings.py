"""Timings: the latencies and rates of one request from the times of its steps. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from labkit.core.step import StepKind


class Timed(NamedTuple):
    """A step: from the end of the one before to its own, and how many tokens it committed."""

    kind: StepKind
    seconds: float
    tokens: int


def timings(steps: Sequence[Timed], prompt_tokens: int) -> dict[str, float]:
    """TTFT, and prefill and decode rates with percentiles of the inter-token latency.

    A pipelined method dispatches a step ahead: its first decode step may wait for two forwards and its last
    for none. The steps between them hold one forward each, so decode metrics are theirs alone; without any
    (all tokens in one step or two) they are absent. A step of k tokens in s seconds gives k latencies of
    s / k: vLLM too spreads a chunk over its tokens.
    """
    found: dict[str, float] = {}
    prefill = sum(step.seconds for step in steps if step.kind == "prefill")
    arrivals = list(_arrivals(steps))
    if prefill:
        found["prefill_tps"] = (prompt_tokens - 1) / prefill
    if arrivals:
        found["ttft_s"] = prefill + arrivals[0].seconds
    steady = arrivals[1:-1]
    if steady:
        found["decode_tps"] = sum(a.tokens for a in steady) / sum(a.seconds for a in steady)
        latencies = np.repeat([a.seconds / a.tokens for a in steady], [a.tokens for a in steady])
        p50, p95, p99 = np.percentile(latencies, [50, 95, 99])
        found |= {"itl_p50_s": float(p50), "itl_p95_s": float(p95), "itl_p99_s": float(p99)}
    return found


def _arrivals(steps: Sequence[Timed]) -> Iterator[Timed]:
    """Decode steps that committed tokens, each with the time of the empty ones before it."""
    waited = 0.0
    for step in steps:
        if step.kind != "decode":
            continue
        waited += step.seconds
        if step.tokens:
            yield step._replace(seconds=waited)
            waited = 0.0
