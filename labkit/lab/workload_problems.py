"""Problems of a workload and of how an arm serves it: fields that contradict, metrics that it does not give.

Knows numbers and names; whether the requests fit a model and a KV budget is the worker's to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from labkit.core.arm import Arm, Workload
from labkit.core.own_class import is_label
from labkit.core.workload import CLOSED, POISSON, TRACE
from labkit.plan.values import is_count, is_number, is_whole, shown
from labkit.schedule.of_workload import LONGEST_S
from labkit.schedule.policies import POLICIES

# Requests of a visit at most: each is planned before the first is sent.
MOST_REQUESTS = 100_000
ALONE = ("prefill_tps", "decode_tps")
TOGETHER = (
    *("ttft_p50_s", "ttft_p95_s", "ttft_p99_s", "tpot_p50_s", "tpot_p99_s"),
    *("e2e_p50_s", "e2e_p95_s", "e2e_p99_s", "aggregate_tps", "request_tps", "rows_mean"),
)
STEADY, GOODPUT = "aggregate_decode_tps", "goodput_rps"
# metric -> the workload's field, the least it can be, and why.
LEAST_TOKENS: Mapping[str, tuple[str, int, str]] = {
    "prefill_tps": ("prompt_tokens", 2, "the last token of a prompt belongs to the first decode step"),
    **dict.fromkeys(
        ("decode_tps", STEADY, "itl_p50_s", "itl_p95_s", "itl_p99_s"),
        ("new_tokens", 3, "the first and the last decode step are not timed"),
    ),
    **dict.fromkeys(("tpot_p50_s", "tpot_p99_s"), ("new_tokens", 2, "the first token is not counted")),
}


def workload_problems(workload: Workload) -> Iterator[str]:
    """What is wrong with a workload as it is written, as `field: what is needed, got what`.

    A field that is no number or text at all hides what the others make of it.
    """
    misshapen = list(_misshapen(workload))
    yield from misshapen
    if not misshapen:
        yield from _spread_problems(workload)
        yield from _arrival_problems(workload)


def arm_problems(role: str, arm: Arm) -> Iterator[str]:
    """What is wrong with how an arm shares the batch engine among requests."""
    for name in ("cap", "kv_budget_bytes"):
        value = getattr(arm, name)
        if value is not None and not is_count(value):
            yield f"{role}.{name}: a whole number of at least 1 or None is needed, got {shown(value)}"
    policy: Any = arm.policy
    known = [p.SPEC.name for p in POLICIES]
    # A class of one's own is judged where it is loaded.
    if policy not in (None, *known) and not (isinstance(policy, str) and is_label(policy)):
        options = f"one of {', '.join(known)}, a class of one's own or None is needed"
        yield f"{role}.policy: {options}, got {shown(policy)}"


def why_not_measured(metric: str, workload: Workload) -> str | None:
    """What a workload lacks to give a metric that visits measure; None where it gives it."""
    several = "a workload of several requests (concurrency, requests or arrivals)"
    if metric in ALONE and workload.several:
        return f"a workload of one request, since with several there is no {metric} of one alone,"
    if metric in (*TOGETHER, STEADY, GOODPUT) and not workload.several:
        return several
    if metric == STEADY and not workload.steady:
        return "a closed loop of requests of equal lengths, with all rows decoding,"
    objectives = (workload.ttft_objective_s, workload.tpot_objective_s)
    if metric == GOODPUT and objectives == (None, None):
        return "an objective (ttft_objective_s, tpot_objective_s)"
    return None


def metric_problems(workload: Workload, metrics: Mapping[str, float]) -> Iterator[str]:
    """Metrics of a hypothesis that visits of this workload do not give."""
    for metric in metrics:
        why = why_not_measured(metric, workload)
        if why is not None:
            yield f"workload: {why} is needed to measure {metric!r}, got {workload.label()}"
            continue
        field, least, reason = LEAST_TOKENS.get(metric, ("", 0, ""))
        got = _least(workload, field) if field else least
        if got < least:
            yield f"workload.{field}: at least {least} are needed to measure {metric!r} ({reason}), got {got}"


def _least(workload: Workload, field: str) -> int:
    """The fewest tokens that a request has; a trace's own are seen where it is read."""
    low = getattr(workload, f"{field}_low")
    return getattr(workload, field) if low is None else low


def _misshapen(workload: Workload) -> Iterator[str]:
    for name in ("prompt_tokens", "new_tokens", "concurrency"):
        value = getattr(workload, name)
        if not is_count(value):
            yield f"workload.{name}: a whole number of at least 1 is needed, got {shown(value)}"
    if not is_whole(workload.seed) or workload.seed < 0:
        yield f"workload.seed: a whole number of at least 0 is needed, got {shown(workload.seed)}"
    for name in ("requests", "prompt_tokens_low", "new_tokens_low"):
        value = getattr(workload, name)
        if value is not None and not is_count(value):
            yield f"workload.{name}: a whole number of at least 1 or None is needed, got {shown(value)}"
    for name in ("rate_per_s", "ttft_objective_s", "tpot_objective_s"):
        value = getattr(workload, name)
        if value is not None and not (is_number(value) and value > 0):
            yield f"workload.{name}: a number above 0 or None is needed, got {shown(value)}"
    arrivals: Any = workload.arrivals
    if not isinstance(arrivals, str) or not (arrivals in (CLOSED, POISSON) or workload.trace):
        options = f"{CLOSED!r}, {POISSON!r} or '{TRACE}<file>.jsonl'"
        yield f"workload.arrivals: {options} is needed, got {shown(arrivals)}"


def _spread_problems(workload: Workload) -> Iterator[str]:
    for name in ("prompt_tokens", "new_tokens"):
        low, high = getattr(workload, f"{name}_low"), getattr(workload, name)
        if low is not None and workload.trace is not None:
            yield f"workload.{name}_low: None is needed, since a trace states its lengths, got {low}"
        elif low is not None and low > high:
            yield f"workload.{name}_low: at most {name}, {high}, is needed, got {low}"


def _arrival_problems(workload: Workload) -> Iterator[str]:
    requests, clients, rate = workload.requests, workload.concurrency, workload.rate_per_s
    if workload.arrivals == POISSON and rate is None:
        yield "workload.rate_per_s: how many requests come in a second is needed, got None"
    if workload.arrivals == POISSON and rate is not None and (requests or 0) / rate > LONGEST_S:
        least = (requests or 0) / LONGEST_S
        yield f"workload.rate_per_s: at least {least:.2g} is needed for all to come in a day, got {rate:g}"
    if workload.arrivals != POISSON and rate is not None:
        yield f"workload.rate_per_s: None is needed unless arrivals are {POISSON!r}, got {rate}"
    if workload.arrivals == POISSON and requests is None:
        yield "workload.requests: how many requests come in all is needed, got None"
    if workload.arrivals != CLOSED and clients != 1:
        yield f"workload.concurrency: 1 is needed where requests come by themselves, got {clients}"
    if workload.arrivals == CLOSED and requests is not None and requests < clients:
        yield f"workload.requests: at least one for each of {clients} clients is needed, got {requests}"
    if max(requests or 0, clients) > MOST_REQUESTS:
        got = max(requests or 0, clients)
        yield f"workload.requests: at most {MOST_REQUESTS} in a visit are possible, got {got}"
    yield from _alone_problems(workload)


def _alone_problems(workload: Workload) -> Iterator[str]:
    """What has no effect with a lone request."""
    names = ("prompt_tokens_low", "new_tokens_low", "ttft_objective_s", "tpot_objective_s")
    stated = [name for name in names if getattr(workload, name) is not None]
    if stated and not workload.several:
        yield f"workload.{stated[0]}: None is needed for a lone request, got {getattr(workload, stated[0])!r}"
