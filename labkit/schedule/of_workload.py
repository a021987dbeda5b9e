"""The requests that a workload asks for: which come when, and how long each is. Knows no token ids."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from labkit.core.errors import ExperimentInvalid
from labkit.core.workload import POISSON, Workload
from labkit.schedule.arrivals import Arrival, Range, closed, poisson
from labkit.schedule.trace import Trace, read_trace

# Seconds in which the requests of a visit come.
LONGEST_S = 86_400


def arrivals_of(workload: Workload) -> tuple[Arrival, ...]:
    """Which requests come, with their lengths and times, the same in every visit.

    Raises TraceInvalid or ExperimentInvalid for a trace that cannot be read, has changed since it was named,
    or asks for more than the workload states.
    """
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
    _traced(workload, trace)
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
    if arrivals[-1].at_s > LONGEST_S:
        need = f"a trace of at most {LONGEST_S:,} seconds, a day, is needed"
        raise ExperimentInvalid(need, got=f"{arrivals[-1].at_s:g}", next_step="fewer requests of it")
    for field, of in (("prompt_tokens", "prompt_tokens"), ("new_tokens", "max_tokens")):
        most, longest = getattr(workload, field), max(getattr(a, of) for a in arrivals)
        if longest > most:
            need = f"workload.{field}: at least {longest} are needed, the most that its trace asks for"
            raise ExperimentInvalid(need, got=most)
    return arrivals


def _range(low: int | None, high: int) -> int | Range:
    return high if low is None else (low, high)
