"""The table of metrics: name, unit, direction and scale. Data only; who measures them is elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """better: the good direction. scale: `ratio` metrics are compared by log ratio, `absolute` as they are.

    A start is timed from a new process to its first token (cold), and from a request in a process that has
    already answered one to its first token (warm). compile_s is what the first request of a process waits
    longer for its first token than the second; only the design `fresh` measures these and load_s.

    What a workload of several requests measures is defined in `labkit.bench.load_metrics`; ttft_s is then the
    mean over its requests, and itl_* is over all of their gaps.

    source: who produces it: `visit` (every run of a workload), `score` (teacher-forced text), `artifact`.
    axis: the frontier axis it belongs to.
    """

    name: str
    title: str
    unit: str
    better: Literal["higher", "lower"]
    source: Literal["visit", "score", "artifact"]
    axis: Literal["speed", "quality", "size"]
    scale: Literal["ratio", "absolute"] = "ratio"


METRICS: Mapping[str, Metric] = {
    m.name: m
    for m in (
        Metric("prefill_tps", "prefill", "tok/s", "higher", "visit", "speed"),
        Metric("decode_tps", "decode", "tok/s", "higher", "visit", "speed"),
        Metric("ttft_s", "time to first token", "s", "lower", "visit", "speed"),
        Metric("ttft_p50_s", "time to first token p50", "s", "lower", "visit", "speed"),
        Metric("ttft_p95_s", "time to first token p95", "s", "lower", "visit", "speed"),
        Metric("ttft_p99_s", "time to first token p99", "s", "lower", "visit", "speed"),
        Metric("itl_p50_s", "inter-token latency p50", "s", "lower", "visit", "speed"),
        Metric("itl_p95_s", "inter-token latency p95", "s", "lower", "visit", "speed"),
        Metric("itl_p99_s", "inter-token latency p99", "s", "lower", "visit", "speed"),
        Metric("tpot_p50_s", "time per output token p50", "s", "lower", "visit", "speed"),
        Metric("tpot_p99_s", "time per output token p99", "s", "lower", "visit", "speed"),
        Metric("e2e_p50_s", "request to last token p50", "s", "lower", "visit", "speed"),
        Metric("e2e_p95_s", "request to last token p95", "s", "lower", "visit", "speed"),
        Metric("e2e_p99_s", "request to last token p99", "s", "lower", "visit", "speed"),
        Metric("aggregate_tps", "aggregate output", "tok/s", "higher", "visit", "speed"),
        Metric("aggregate_decode_tps", "aggregate decode", "tok/s", "higher", "visit", "speed"),
        Metric("request_tps", "output of a request", "tok/s", "higher", "visit", "speed"),
        Metric("goodput_rps", "goodput", "req/s", "higher", "visit", "speed", "absolute"),
        Metric("rows_mean", "rows at a time", "rows", "higher", "visit", "speed"),
        Metric("load_s", "load", "s", "lower", "visit", "speed"),
        Metric("cold_start_s", "cold start", "s", "lower", "visit", "speed"),
        Metric("warm_start_s", "warm start", "s", "lower", "visit", "speed"),
        Metric("compile_s", "compile", "s", "lower", "visit", "speed", "absolute"),
        Metric("kv_bytes", "KV cache", "bytes", "lower", "visit", "size"),
        Metric("peak_bytes", "peak device memory", "bytes", "lower", "visit", "size"),
        Metric("footprint_bytes", "process footprint", "bytes", "lower", "visit", "size"),
        Metric("artifact_bytes", "artifact", "bytes", "lower", "artifact", "size"),
        Metric("effective_bpw", "effective bits per weight", "bit", "lower", "artifact", "size"),
        Metric("kl_mean_nats", "KL to the reference", "nats", "lower", "score", "quality", "absolute"),
        Metric("ppl_ratio", "perplexity ratio", "x", "lower", "score", "quality"),
        Metric("top1_agreement", "top-1 agreement", "share", "higher", "score", "quality", "absolute"),
    )
}

_OF_AXIS: Mapping[str, float] = {"speed": 0.03, "quality": 0.01, "size": 0.01}
_OWN: Mapping[str, float] = {
    "peak_bytes": 0.02,
    "footprint_bytes": 0.05,
    "compile_s": 0.1,
    "goodput_rps": 0.05,
}
# What counts as a difference where no experiment has registered a margin: ratios less 1, absolute ones in
# the metric's unit.
DEFAULT_MARGINS: Mapping[str, float] = {m.name: _OWN.get(m.name, _OF_AXIS[m.axis]) for m in METRICS.values()}
