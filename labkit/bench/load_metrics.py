"""Load metrics: latencies, rates and goodput from what the clients of a load saw. Pure.

As vLLM's serving benchmark defines them (vllm/benchmarks/serve.py, calculate_metrics): TTFT from a request to
its first token, TPOT the mean time of its tokens after the first, ITL every gap between two of its tokens,
E2E from a request to its last token; percentiles of TTFT, TPOT and E2E over requests, of ITL over all gaps.
Goodput is the requests a second that meet every stated objective.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np

from labkit.bench.load_client import Served, Worked
from labkit.core.arm import Workload
from labkit.schedule.outcome import Timing, percentile

PERCENTILES = (50, 95, 99)


def load_metrics(served: Served, workload: Workload) -> dict[str, float]:
    """Every metric of a workload of several requests that there are samples for, memory included."""
    timings = served.timings
    over_requests = {"ttft": [t.ttft_s for t in timings], "e2e": [t.latency_s for t in timings]}
    found = {
        **_percentiles("itl", PERCENTILES, (gap for t in timings for gap in t.itl_s)),
        **_percentiles("tpot", (50, 99), map(tpot_s, timings)),
        **dict(_rates(served, workload)),
        **served.memory,
    }
    for name, samples in over_requests.items():
        found |= _percentiles(name, PERCENTILES, samples)
    firsts = [first for first in over_requests["ttft"] if first is not None]
    if firsts:
        found["ttft_s"] = float(np.mean(firsts))
    return {**found, "kv_bytes": served.kv_bytes}


def tpot_s(timing: Timing) -> float | None:
    """Mean seconds of an output token after the first; None of fewer than two."""
    after = len(timing.token_s) - 1
    return (timing.token_s[-1] - timing.token_s[0]) / after if after > 0 else None


def meets(timing: Timing, workload: Workload) -> bool:
    """Whether a request meets every objective that the workload states."""
    held = ((timing.ttft_s, workload.ttft_objective_s), (tpot_s(timing), workload.tpot_objective_s))
    return all(limit is None or value is None or value <= limit for value, limit in held)


def _rates(served: Served, workload: Workload) -> Iterator[tuple[str, float]]:
    timings = served.timings
    tokens, busy_s = sum(len(t.token_s) for t in timings), sum(_busy_spans(timings))
    if tokens and busy_s > 0:
        yield "aggregate_tps", tokens / busy_s
    own = [len(t.token_s) / t.latency_s for t in timings if t.latency_s]
    if own:
        yield "request_tps", float(np.median(own))
    stated = (workload.ttft_objective_s, workload.tpot_objective_s)
    span_s = max(t.token_s[-1] for t in timings) - min(t.arrival_s for t in timings)
    if span_s > 0 and any(limit is not None for limit in stated):
        yield "goodput_rps", sum(meets(t, workload) for t in timings) / span_s
    decoding = [unit for unit in served.units if unit.tokens]
    if decoding:
        yield "rows_mean", sum(unit.rows for unit in decoding) / len(decoding)
    full = list(_fullest(served.units)) if workload.steady else []
    if full:
        yield "aggregate_decode_tps", sum(u.tokens for u in full) / sum(u.seconds for u in full)


def _fullest(units: Sequence[Worked]) -> Iterator[Worked]:
    """The units in which as many rows got tokens as ever, without the first and the last of those in a row.

    A pipelined server waits for two forwards in the first and for none in the last, as it does for one row.
    """
    most = max((unit.rows for unit in units), default=0)
    for full, run in groupby(units, lambda unit: unit.rows == most):
        if full:
            yield from list(run)[1:-1]


def _busy_spans(timings: Iterable[Timing]) -> Iterator[float]:
    """The seconds in which at least one request was not answered, span by span."""
    began = ended = None
    for timing in sorted(timings, key=lambda t: t.arrival_s):
        if began is None or ended is None or timing.arrival_s > ended:
            if began is not None and ended is not None:
                yield ended - began
            began, ended = timing.arrival_s, timing.token_s[-1]
        ended = max(ended, timing.token_s[-1])
    if began is not None and ended is not None:
        yield ended - began


def _percentiles(name: str, percents: Sequence[int], samples: Iterable[float | None]) -> dict[str, float]:
    held = [sample for sample in samples if sample is not None]
    return {f"{name}_p{percent}_s": percentile(held, percent) for percent in percents} if held else {}
