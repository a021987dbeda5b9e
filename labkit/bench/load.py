"""Load: a visit whose requests share a server, as its clients see it. Knows no statistics over visits."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from labkit.bench.load_client import ClientClock, Clients, Served
from labkit.bench.load_metrics import load_metrics
from labkit.bench.load_requests import load_of
from labkit.bench.load_server import EngineServer, Server
from labkit.bench.load_upstream import UpstreamServer
from labkit.bench.timings import Timed, timings
from labkit.bench.visit import Meter, VisitSample
from labkit.core.arm import Arm, Workload
from labkit.core.canonical import digest
from labkit.engine.batching.batch import CAP
from labkit.engine.model import Model
from labkit.engine.upstream_batch import UpstreamBatch
from labkit.plan.plan import Plan

# A method that answers several requests by itself; any other is stepped by labkit's batch engine.
SERVERS: Mapping[str, Callable[[Model, Arm, int], Server]] = {UpstreamBatch.SPEC.name: UpstreamServer}
DEFAULT_POLICY = "fcfs"


def is_served(arm: Arm, workload: Workload) -> bool:
    """Whether an arm answers a workload through a server, and not in a session of its own."""
    return workload.several or arm.batches or arm.method in SERVERS


def serving(arm: Arm, plan: Plan) -> dict[str, Any]:
    """What decides how requests share a server, as a plan's identity holds it beside its own."""
    own = {"policy": arm.policy or DEFAULT_POLICY, "kv_budget_bytes": arm.kv_budget_bytes}
    engine = own if plan.method not in SERVERS else {}
    return {**engine, "cap": arm.cap or CAP}


def serving_plan(arm: Arm, plan: Plan) -> dict[str, Any]:
    """What a worker answers of its plan: identity, hash and text, with how requests share the server."""
    shared = serving(arm, plan)
    identity = {**plan.identity(), "serving": shared}
    words = ", ".join(f"{name} {'none' if value is None else value}" for name, value in shared.items())
    explained = f"{plan.explain()}\n{'serving':<12}{words}"
    return {"plan": identity, "plan_hash": digest(identity), "explain": explained}


def check_load(model: Model, arm: Arm, workload: Workload) -> None:
    """Raise where a request of the workload could never be answered. Runs nothing.

    Raises PlanRefused where the KV budget is too small for it, TraceInvalid for a trace that is none.
    """
    load = load_of(model, arm, workload, workload.seed)
    longest = max(load.requests, key=lambda request: len(request.prompt) + request.max_tokens)
    with _server(model, arm, 1) as server:
        server.submit(0, longest)


def run_load(
    model: Model,
    arm: Arm,
    workload: Workload,
    seed: int,
    meter: Meter,
    wait: Callable[[float], None] = time.sleep,
) -> VisitSample:
    """One visit. wait: lets seconds pass on the model's clock, until the next request of an open loop.

    The samples of the visit are those of the server's units of work: those that gave tokens, with how many,
    and those that gave none.
    """
    load = load_of(model, arm, workload, seed)
    with _server(model, arm, len(load.requests)) as server:
        served = Clients(load, server, ClientClock(model.clock, wait), meter).run()
    decode = [unit for unit in served.units if unit.tokens]
    return VisitSample(
        metrics=_metrics(served, workload),
        prefill_seconds=tuple(unit.seconds for unit in served.units if not unit.tokens),
        decode_seconds=tuple(unit.seconds for unit in decode),
        decode_tokens=tuple(unit.tokens for unit in decode),
        tokens_hash=_tokens_hash(served),
        seconds=sum(unit.seconds for unit in served.units),
        start_s=served.timings[0].ttft_s,
    )


def _server(model: Model, arm: Arm, most: int) -> Server:
    return SERVERS.get(arm.method or "", EngineServer)(model, arm, most)


def _metrics(served: Served, workload: Workload) -> dict[str, float]:
    """Of a lone request what a session's visit measures, so that the two compare."""
    if workload.several:
        return load_metrics(served, workload)
    steps = [Timed("decode" if u.tokens else "prefill", u.seconds, u.tokens) for u in served.units]
    return {**timings(steps, workload.prompt_tokens), "kv_bytes": served.kv_bytes, **served.memory}


def _tokens_hash(served: Served) -> str:
    """Over the ids of all requests, in the order of arrival; of a lone request that of a session's visit."""
    ids = [token for tokens in served.tokens for token in tokens]
    return hashlib.sha256(np.asarray(ids, dtype="<i8").tobytes()).hexdigest()[:16]
