"""One visit: a workload run once on one model, timed on the session's clock. Knows no statistics."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from labkit.core.arm import Arm, Workload
from labkit.core.errors import ExperimentInvalid
from labkit.core.request import Request
from labkit.engine.model import Model

# The first two stand before and after the visit's own work; a null model has neither.
Meter = Callable[[], dict[str, float]]


@dataclass(frozen=True, slots=True)
class VisitSample:
    """Raw samples of one visit. Times are seconds between the ends of successive steps."""

    metrics: dict[str, float]
    prefill_seconds: tuple[float, ...]
    decode_seconds: tuple[float, ...]
    tokens_hash: str
    seconds: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> VisitSample:
        listed = {k: tuple(data[k]) for k in ("prefill_seconds", "decode_seconds")}
        return cls(**{**data, **listed})


def workload_request(model: Model, arm: Arm, workload: Workload, seed: int) -> Request:
    """The request of one visit: seeded uniform token ids, no stop token, exactly new_tokens decoded."""
    if workload.concurrency != 1:
        need = "a workload with concurrency 1 (batched workloads need the batch engine)"
        raise ExperimentInvalid(need, got=workload.concurrency)
    source = random.Random(f"{workload.seed}/{seed}")
    prompt = tuple(source.randrange(model.profile.vocab_size) for _ in range(workload.prompt_tokens))
    return model.request(
        prompt,
        kv=arm.kv,
        max_tokens=workload.new_tokens,
        prefill_chunk=arm.prefill_chunk,
        seed=seed,
        sampling=arm.sampling,
        stop_tokens=(),
        method=arm.method,
    )


def run_visit(model: Model, request: Request, meter: Meter) -> VisitSample:
    """Run one request to its end. `meter()` is read after the last step, before the caches are freed."""
    session = model.open(request)
    stamps, kinds = [model.clock()], []
    memory: dict[str, float] = {}
    while not session.finished:
        step = session.step()
        if step is None:
            break
        stamps.append(model.clock())
        kinds.append(step.kind)
    memory = meter()
    gaps = np.diff(stamps).tolist()
    prefill = tuple(gap for gap, kind in zip(gaps, kinds, strict=True) if kind == "prefill")
    decode = tuple(gap for gap, kind in zip(gaps, kinds, strict=True) if kind == "decode")
    tokens_hash = hashlib.sha256(np.asarray(session.tokens, dtype="<i8").tobytes()).hexdigest()[:16]
    metrics = {**_timings(prefill, decode, len(request.prompt)), "kv_bytes": session.kv_bytes, **memory}
    return VisitSample(metrics, prefill, decode, tokens_hash, stamps[-1] - stamps[0])


def _timings(prefill: tuple[float, ...], decode: tuple[float, ...], prompt_tokens: int) -> dict[str, float]:
    """TTFT, and prefill and decode rates with percentiles of the inter-token latency.

    A pipelined method dispatches a step ahead: its first decode step may wait for two forwards and its last
    for none. The steps between them hold one forward each, so decode metrics are theirs alone.
    """
    found = {"ttft_s": sum(prefill) + decode[0]}
    if prefill:
        found["prefill_tps"] = (prompt_tokens - 1) / sum(prefill)
    steady = decode[1:-1]
    if steady:
        found["decode_tps"] = len(steady) / sum(steady)
        p50, p95, p99 = np.percentile(steady, [50, 95, 99])
        found |= {"itl_p50_s": float(p50), "itl_p95_s": float(p95), "itl_p99_s": float(p99)}
    return found
