"""The requests of a workload of several: which come when, and the token ids of each. Runs nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from labkit.bench.visit import sized_request
from labkit.core.arm import Arm, Workload
from labkit.core.errors import ExperimentInvalid
from labkit.core.request import Request
from labkit.core.workload import POISSON
from labkit.engine.model import Model
from labkit.schedule.arrivals import Arrival, Range, closed, poisson
from labkit.schedule.trace import Trace, read_trace


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent in one visit. arrivals and requests: of the same order and number.

    clients: of a closed loop, which send the next request once one is answered; None where requests come at
    the times of `arrivals`, whatever has become of those before.
    """

    arrivals: tuple[Arrival, ...]
    requests: tuple[Request, ...]
    clients: int | None = None


def load_of(model: Model, arm: Arm, workload: Workload, seed: int) -> Load:
    """The requests of a visit. Lengths and times are the workload's, token ids the visit's as well.

    Raises TraceInvalid or ExperimentInvalid for a trace that cannot be read, has changed since it was named,
    or asks for more than the workload states.
    """
    arrivals = arrivals_of(workload)
    requests = tuple(
        sized_request(model, arm, workload, seed, index, a.prompt_tokens, a.max_tokens)
        for index, a in enumerate(arrivals)
    )
    return Load(arrivals, requests, workload.concurrency if workload.arrivals == "closed" else None)


def arrivals_of(workload: Workload) -> tuple[Arrival, ...]:
    """Which requests come, with their lengths and times, the same in every visit."""
    if workload.trace is not None:
        return _traced(workload, read_trace(Path(workload.trace)))
    prompt = _range(workload.prompt_tokens_low, workload.prompt_tokens)
    new = _range(workload.new_tokens_low, workload.new_tokens)
    count, seed = workload.count or 1, workload.seed
    if workload.arrivals == POISSON:
        rate = workload.rate_per_s or 0.0
        return poisson(rate, count, prompt_tokens=prompt, max_tokens=new, seed=seed)
    return closed(count, prompt_tokens=prompt, max_tokens=new, seed=seed)


def with_trace(workload: Workload) -> Workload:
    """The workload with the hash of its trace, which is read and checked; any other as it is."""
    if workload.trace is None:
        return workload
    trace = read_trace(Path(workload.trace))
    _traced(replace(workload, trace_sha256=""), trace)
    return replace(workload, trace_sha256=trace.sha256)


def _traced(workload: Workload, trace: Trace) -> tuple[Arrival, ...]:
    """The requests of a trace that the workload takes."""
    if workload.trace_sha256 not in ("", trace.sha256):
        need = f"the trace {workload.portable().trace} that the workload was made with is needed"
        raise ExperimentInvalid(need, got="another text in its file", next_step="start the run anew")
    wanted = workload.requests or len(trace.arrivals)
    if wanted > len(trace.arrivals):
        need = f"workload.requests: at most the {len(trace.arrivals)} of its trace are possible"
        raise ExperimentInvalid(need, got=wanted)
    arrivals = trace.arrivals[:wanted]
    for field, of in (("prompt_tokens", "prompt_tokens"), ("new_tokens", "max_tokens")):
        most, longest = getattr(workload, field), max(getattr(a, of) for a in arrivals)
        if longest > most:
            need = f"workload.{field}: at least {longest} are needed, the most that its trace asks for"
            raise ExperimentInvalid(need, got=most)
    return arrivals


def _range(low: int | None, high: int) -> int | Range:
    return high if low is None else (low, high)
