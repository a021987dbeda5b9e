"""One visit: a workload run once on one model, timed on the session's clock. Knows no statistics."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from labkit.bench.timings import Timed, timings
from labkit.core.arm import Arm, Workload
from labkit.core.errors import PlanRefused
from labkit.core.request import Request
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
    """The request of one visit: seeded uniform token ids, no stop token, exactly new_tokens decoded.

    Of a workload of several requests the longest that it may hold, with the token ids of the first.
    """
    return sized_request(model, arm, workload, seed, 0, workload.prompt_tokens, workload.new_tokens)


def sized_request(
    model: Model, arm: Arm, workload: Workload, seed: int, index: int, prompt_tokens: int, new_tokens: int
) -> Request:
    """Request `index` of a visit with these lengths: token ids of its own, and of the visit's seed."""
    context = model.profile.context_length
    if prompt_tokens > context:  # refused before a prompt of any length is made up
        need = f"a workload within the context of {model.name}, {context} tokens, is needed"
        raise PlanRefused(need, got=f"{prompt_tokens} prompt tokens")
    source = random.Random(f"{workload.seed}/{seed}" + (f"/{index}" if index else ""))
    prompt = tuple(source.randrange(model.profile.vocab_size) for _ in range(prompt_tokens))
    return model.request(
        prompt,
        kv=arm.asked("kv"),
        max_tokens=new_tokens,
        prefill_chunk=arm.prefill_chunk,
        seed=seed + index,
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
    session, steps, readings = model.open(request), list[Timed](), list[dict[str, float]]()
    started, first_at = model.clock(), None
    for step in session.steps():
        steps.append(Timed(step.kind, model.clock() - started, len(step.tokens)))
        if step.tokens and first_at is None:
            first_at = model.clock()
        if request.max_tokens - len(session.tokens) <= max(1, len(step.tokens)) and not session.finished:
            readings.append(meter())
        started = model.clock()
    readings.append(meter())
    memory = {name: max(r[name] for r in readings if name in r) for name in readings[-1]}
    decode = [step for step in steps if step.kind == "decode"]
    metrics = {**timings(steps, len(request.prompt)), "kv_bytes": session.kv_bytes, **memory}
    return VisitSample(
        metrics=metrics,
        prefill_seconds=tuple(step.seconds for step in steps if step.kind == "prefill"),
        decode_seconds=tuple(step.seconds for step in decode),
        decode_tokens=tuple(step.tokens for step in decode),
        tokens_hash=hashlib.sha256(np.asarray(session.tokens, dtype="<i8").tobytes()).hexdigest()[:16],
        seconds=sum(step.seconds for step in steps),
        start_s=None if first_at is None else first_at - asked,
    )
