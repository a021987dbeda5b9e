"""Asked: the workload of a load bench, as a person states it: clients, a rate or a trace, ranges."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from labkit.core.arm import Workload
from labkit.core.errors import ExperimentInvalid
from labkit.core.workload import CLOSED, POISSON, TRACE
from labkit.plan.values import is_count
from labkit.schedule.trace import read_trace

CLIENTS, PROMPT, NEW = 4, "256", "64"
# Where nothing is said: answers for each client, or arrivals of an open loop.
REQUESTS_A_CLIENT, ARRIVALS = 4, 16


def workload_of(
    *,
    clients: int | None = None,
    rate: float | None = None,
    trace: Path | None = None,
    requests: int | None = None,
    prompt: str | None = None,
    new: str | None = None,
    ttft_objective_s: float | None = None,
    tpot_objective_s: float | None = None,
    seed: int = 0,
) -> Workload:
    """A closed loop of `clients`, an open loop at `rate` requests a second, or the requests of a trace.

    prompt, new: tokens, `256` or evenly from `64-512`; a trace has its own. requests: None takes 4 a client,
    16 of an open loop, all of a trace. Raises ExperimentInvalid where two of them are stated, or a range is
    none, and TraceInvalid for a trace that cannot be read.
    """
    stated = {"clients": clients, "rate": rate, "trace": trace}
    named = [name for name, value in stated.items() if value is not None]
    if len(named) > 1:
        need = "one way in which requests come is needed: clients, a rate or a trace"
        raise ExperimentInvalid(need, got=" and ".join(named))
    lengths = _lengths(prompt, new) if trace is None else _of_trace(trace, requests, prompt, new)
    several = 1 if rate is not None or trace is not None else CLIENTS if clients is None else clients
    return Workload(
        **lengths,
        concurrency=several,
        seed=seed,
        requests=_count(requests, rate, trace, several),
        arrivals=f"{TRACE}{trace}" if trace is not None else CLOSED if rate is None else POISSON,
        rate_per_s=rate,
        ttft_objective_s=ttft_objective_s,
        tpot_objective_s=tpot_objective_s,
    )


def _count(requests: int | None, rate: float | None, trace: Path | None, clients: int) -> int | None:
    """How many requests come in all; None is all of a trace."""
    if requests is not None or trace is not None:
        return requests
    return REQUESTS_A_CLIENT * clients if rate is None else ARRIVALS


def _lengths(prompt: str | None, new: str | None) -> dict[str, Any]:
    (prompt_low, prompt_high), (new_low, new_high) = (
        _range("prompt", prompt or PROMPT),
        _range("new", new or NEW),
    )
    highest = {"prompt_tokens": prompt_high, "new_tokens": new_high}
    return {**highest, "prompt_tokens_low": prompt_low, "new_tokens_low": new_low}


def _of_trace(trace: Path, requests: int | None, prompt: str | None, new: str | None) -> dict[str, Any]:
    """The most prompt and new tokens of the requests that are taken."""
    stated = [text for text in (prompt, new) if text is not None]
    if stated:
        need = "no lengths are needed beside a trace, which has those of its requests"
        raise ExperimentInvalid(need, got=" and ".join(stated))
    if requests is not None and not is_count(requests):
        raise ExperimentInvalid("requests: a whole number of at least 1 is needed", got=requests)
    arrivals = read_trace(trace).arrivals[:requests]
    longest = max(a.prompt_tokens for a in arrivals)
    return {"prompt_tokens": longest, "new_tokens": max(a.max_tokens for a in arrivals)}


def _range(name: str, text: str) -> tuple[int | None, int]:
    found = re.fullmatch(r"(?:([0-9]{1,9})-)?([0-9]{1,9})", text)
    if found is None:
        need = f"{name}: a number of tokens, or the least and the most as in 64-512, is needed"
        raise ExperimentInvalid(need, got=text)
    low, high = found.groups()
    return None if low is None else int(low), int(high)
