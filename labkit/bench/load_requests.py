"""The requests of a visit whose workload has several: which come when, with the token ids of each."""

from __future__ import annotations

from dataclasses import dataclass

from labkit.bench.visit import sized_request
from labkit.core.arm import Arm, Workload
from labkit.core.request import Request
from labkit.core.workload import CLOSED
from labkit.engine.model import Model
from labkit.schedule.arrivals import Arrival
from labkit.schedule.of_workload import arrivals_of


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

    Raises as `arrivals_of` does, and PlanRefused for a prompt beyond the model's context.
    """
    arrivals = arrivals_of(workload)
    requests = tuple(
        sized_request(model, arm, workload, seed, index, a.prompt_tokens, a.max_tokens)
        for index, a in enumerate(arrivals)
    )
    return Load(arrivals, requests, workload.concurrency if workload.arrivals == CLOSED else None)
