"""One visit: a workload run once on one model, timed on the session's clock. Knows no statistics."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from labkit.core.arm import Arm, Workload
from labkit.core.errors import ExperimentInvalid, PlanRefused
from labkit.core.request import Request
from labkit.core.step import StepKind
from labkit.engine.model import Model

# Bytes of memory by metric name, now; it may take milliseconds, so it is read outside what is timed.
Meter = Callable[[], dict[str, float]]


@dataclass(frozen=True, slots=True)
class VisitSample:
    """Raw samples of one visit. Times are seconds from the end of one step to the end of the next.

    decode_tokens: how many tokens each decode step committed, beside its decode_seconds. start_s: seconds
    from the request, planning included, to its first token; None without any.
    """

    metrics: dict[str, float]
    prefill_seconds: tuple[float, ...]
    decode_seconds: tuple[float, ...]
    decode_tokens: tuple[int, ...]
    tokens_hash: str
    seconds: float = 0.0
    start_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> VisitSample:
        listed = {k: tuple(data[k]) for k in ("prefill_seconds", "decode_seconds", "decode_tokens")}
        return cls(**{**data, **listed})


def workload_request(model: Model, arm: Arm, workload: Workload, seed: int) -> Request:
    """The request of one visit: seeded uniform token ids, no stop token, exactly new_tokens decoded."""
    if workload.concurrency != 1:
        need = "a workload with concurrency 1 (batched workloads need the batch engine)"
        raise ExperimentInvalid(need, got=workload.concurrency)
    context = model.profile.context_length
    if workload.prompt_tokens > context:  # refused before a prompt of any length is made up
        need = f"a workload within the context of {model.name}, {context} tokens, is needed"
        raise PlanRefused(need, got=f"{workload.prompt_tokens} prompt tokens")
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
    """Run one request to its end.

    The meter is read after a step that leaves no more tokens than it committed itself (for a method of k
    tokens a step: before the last step, when the caches are full), and at the end, when they are freed; the
    larger value of each metric counts. A visit of a single step is read when its caches are gone.
    """
    asked = model.clock()
    session, steps, readings = model.open(request), list[_Timed](), list[dict[str, float]]()
    started, first_at = model.clock(), None
    for step in session.steps():
        steps.append(_Timed(step.kind, model.clock() - started, len(step.tokens)))
        if step.tokens and first_at is None:
            first_at = model.clock()
        if request.max_tokens - len(session.tokens) <= max(1, len(step.tokens)) and not session.finished:
            readings.append(meter())
        started = model.clock()
    readings.append(meter())
    memory = {name: max(r[name] for r in readings if name in r) for name in readings[-1]}
    decode = [step for step in steps if step.kind == "decode"]
    metrics = {**_timings(steps, len(request.prompt)), "kv_bytes": session.kv_bytes, **memory}
    return VisitSample(
        metrics=metrics,
        prefill_seconds=tuple(step.seconds for step in steps if step.kind == "prefill"),
        decode_seconds=tuple(step.seconds for step in decode),
        decode_tokens=tuple(step.tokens for step in decode),
        tokens_hash=hashlib.sha256(np.asarray(session.tokens, dtype="<i8").tobytes()).hexdigest()[:16],
        seconds=sum(step.seconds for step in steps),
        start_s=None if first_at is None else first_at - asked,
    )


class _Timed(NamedTuple):
    kind: StepKind
    seconds: float
    tokens: int


def _timings(steps: Sequence[_Timed], prompt_tokens: int) -> dict[str, float]:
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


def _arrivals(steps: Sequence[_Timed]) -> Iterator[_Timed]:
    """Decode steps that committed tokens, each with the time of the empty ones before it."""
    waited = 0.0
    for step in steps:
        if step.kind != "decode":
            continue
        waited += step.seconds
        if step.tokens:
            yield step._replace(seconds=waited)
            waited = 0.0
