"""Policies on a batch: it does the work that the simulator foretells, and shows them nothing but data."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.core.errors import LabkitError, SessionFailed
from labkit.engine.batching.batch import Batch
from labkit.engine.batching.session import BatchedSession
from labkit.engine.model import Model
from labkit.model.null import VirtualClock
from labkit.schedule.admission import Budget
from labkit.schedule.arrivals import Arrival
from labkit.schedule.outcome import Outcome
from labkit.schedule.policies import POLICIES, FirstCome, in_order
from labkit.schedule.policy import Policy, PolicyInvalid, PolicySpec
from labkit.schedule.queue import Queue, RequestState
from labkit.schedule.simulate import Costs, simulate
from tests.unit.null_session import null_model_without_mlx
from tests.unit.policy_spy import Spy

NAMES = tuple(policy.SPEC.name for policy in POLICIES)
CHUNK = 16
# Powers of two, so that sums of seconds are exact. The null model decodes row by row.
SPEC = "null:prefill_tps=1024,decode_tps=64"
COSTS = Costs(1 / 1024, lambda rows: rows / 64)
# Bytes of the null model's row: of all positions but that of the newest token.
TOKEN_BYTES = 64


def held_bytes(tokens: int) -> int:
    return TOKEN_BYTES * (tokens - 1)


def ran(
    arrivals: Sequence[Arrival], policy: str | type[Policy], cap: int, limit: int | None = None
) -> Outcome:
    """The outcome of a batch to which requests come at their times, by the model's simulated clock."""
    model = null_model_without_mlx(SPEC)
    clock: Any = model.clock
    assert isinstance(clock, VirtualClock)
    pending, held = deque(sorted(arrivals, key=lambda a: a.at_s)), list[BatchedSession]()
    with model.batch(policy=policy, cap=cap, queue=len(arrivals), kv_budget_bytes=limit) as batch:
        while pending or batch.sessions():
            while pending and pending[0].at_s <= clock():
                held.append(_opened(batch, model, pending.popleft()))
            if not batch.turn():
                clock.advance(pending[0].at_s - clock())
            for session in held:
                while session.unread:
                    session.take()
        return batch.outcome()


def _opened(batch: Batch, model: Model, arrival: Arrival) -> BatchedSession:
    """A session that ends when the arrival says, by a stop token where that is early."""
    prompt, drawn = _prompt(arrival), drawn_of(arrival)
    stops = drawn[arrival.tokens - 1 : arrival.tokens] if arrival.tokens < arrival.max_tokens else ()
    how: dict[str, Any] = {"max_tokens": arrival.max_tokens, "prefill_chunk": CHUNK, "stop_tokens": stops}
    session = batch.session(prompt, client=arrival.client, **how)
    assert session.name == arrival.id
    return session


def drawn_of(arrival: Arrival) -> tuple[int, ...]:
    """All tokens that the null model draws for it, on a clock of another model."""
    model = null_model_without_mlx(SPEC)
    return model.session(_prompt(arrival), max_tokens=arrival.max_tokens, stop_tokens=()).run().tokens


def _prompt(arrival: Arrival) -> list[int]:
    return [65] * arrival.prompt_tokens


tokens = st.integers(1, 12)
streams = st.lists(
    st.tuples(st.integers(0, 32), st.integers(1, 60), tokens, tokens, st.sampled_from("xyz")),
    min_size=1,
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(
    stream=streams, cap=st.integers(1, 4), policy=st.sampled_from(NAMES), room=st.none() | st.integers(0, 3)
)
def test_a_batch_does_what_the_simulator_foretells(
    stream: list[tuple[int, int, int, int, str]], cap: int, policy: str, room: int | None
) -> None:
    arrivals = [
        Arrival(f"r{i}", s[0] / 16, s[1], max(s[2], s[3]), min(s[2], s[3]), client=s[4])
        for i, s in enumerate(sorted(stream, key=lambda s: s[0]))
    ]
    arrivals = [_ending(arrival) for arrival in arrivals]
    most = max(held_bytes(a.prompt_tokens + a.max_tokens) for a in arrivals)
    limit = None if room is None else max(most, 1) + room * TOKEN_BYTES * 20
    real = ran(arrivals, policy, cap, limit)
    budget = None if limit is None else Budget(limit, held_bytes)
    foretold = simulate(arrivals, COSTS, policy=policy, cap=cap, prefill_chunk=CHUNK, budget=budget)
    assert told(real) == told(foretold)
    admitted = {timing.id: timing.admitted_s for timing in foretold.timings}
    assert {timing.id: timing.admitted_s for timing in real.timings} == admitted


def _ending(arrival: Arrival) -> Arrival:
    """The arrival with the tokens after which its stop token comes for the first time."""
    drawn = drawn_of(arrival)
    return replace(arrival, new_tokens=drawn.index(drawn[arrival.tokens - 1]) + 1)


def told(outcome: Outcome) -> list[tuple[Any, ...]]:
    return [
        (unit.kind, unit.start_s, unit.seconds, unit.ids, unit.running, unit.reserved_bytes)
        for unit in outcome.units
    ]


def flood(count: int) -> list[Arrival]:
    """Short prompts that keep two rows busy, and a long one that comes early."""
    short = [Arrival("", i / 32, 9, 2, client="flood") for i in range(count)]
    stream = sorted([*short, Arrival("", 0.53, 400, 4, client="patient")], key=lambda a: a.at_s)
    return [
        Arrival(f"r{i}", a.at_s, a.prompt_tokens, a.max_tokens, client=a.client) for i, a in enumerate(stream)
    ]


@pytest.mark.parametrize("policy", ["fair", "shortest-prompt"])
def test_under_fair_nobody_waits_longer_because_more_come(policy: str) -> None:
    waits = []
    for count in (40, 120):
        outcome = ran(flood(count), policy, cap=2)
        (patient,) = [timing for timing in outcome.timings if timing.client == "patient"]
        waits.append(patient.latency_s or 0.0)
    assert (waits[1] == waits[0]) == (policy == "fair")
    assert policy == "fair" or waits[1] > 2 * waits[0]


@pytest.mark.parametrize("policy", NAMES)
def test_who_is_held_up_by_whom(policy: str) -> None:
    """A row decodes when a long prompt comes: what runs while both could."""
    arrivals = [Arrival("r0", 0.0, 2, 40), Arrival("r1", 0.25, 16 * 20 + 1, 2)]
    outcome = ran(arrivals, policy, cap=2)
    first = next(i for i, unit in enumerate(outcome.units) if unit.ids == ("r1",))
    kinds = [unit.kind for unit in outcome.units[first:]][:20]
    alternating = ["prefill", "decode"] * 10
    expected = {"prefill-first": ["prefill"] * 20, "decode-first": ["prefill"] * 20}.get(policy, alternating)
    assert kinds == expected
    # The last of its chunks comes after the other row has ended, or before its next token.
    decoded = [unit for unit in outcome.units[:first] if unit.kind == "decode"]
    assert len(decoded) == (40 if policy == "decode-first" else len(decoded)) >= 4


def test_nothing_but_plain_frozen_data_is_within_reach_of_a_policy() -> None:
    spy = Spy()
    with null_model_without_mlx().batch(policy=spy, cap=3, kv_budget_bytes=64 * 400) as batch:
        held = [batch.session("a prompt", max_tokens=9, client="c", stop_tokens=()) for _ in range(8)]
        batch.run()
        assert spy.seen > 1000
        spy.look(batch.queue)
    assert all(session.finished for session in held)
    assert spy.types <= {Queue, RequestState, tuple, str, int, float, type(None)}


class Writes(FirstCome):
    """Of one's own, and bad: it writes to what it is shown."""

    SPEC: ClassVar[PolicySpec] = PolicySpec("writes", "itself")

    def admit(self, queue: Queue) -> Sequence[str]:
        wanted = super().admit(queue)
        self.spoil(queue)
        return wanted

    def next(self, queue: Queue) -> Any:
        work = super().next(queue)
        self.spoil(queue)
        return work

    @staticmethod
    def spoil(queue: Queue) -> None:
        for state in (*queue.waiting, *queue.running):
            for name, value in (("prompt_tokens", 1), ("generated", 9), ("id", "x"), ("reserved_bytes", -1)):
                object.__setattr__(state, name, value)
        for name, value in (("running", ()), ("waiting", ()), ("cap", 99)):
            object.__setattr__(queue, name, value)


def test_what_a_policy_writes_changes_nothing() -> None:
    arrivals = [Arrival(f"r{i}", i / 64, 40, 6, 6) for i in range(6)]
    assert replace(ran(arrivals, Writes, 2, 64 * 150), policy="") == replace(
        ran(arrivals, "fcfs", 2, 64 * 150), policy=""
    )


class Needs(FirstCome):
    def __init__(self, weight: int) -> None:
        self.weight = weight


def test_a_policy_that_needs_arguments_is_passed_as_an_instance() -> None:
    model = null_model_without_mlx()
    with pytest.raises(PolicyInvalid, match="takes no arguments was needed of Needs") as raised:
        model.batch(policy=Needs)
    assert raised.value.next_step == "pass an instance of it"
    with model.batch(policy=Needs(3), max_tokens=2) as batch:
        assert batch.session("a").run().tokens


def test_a_client_is_a_name() -> None:
    with null_model_without_mlx().batch() as batch, pytest.raises(LabkitError, match="client: a name"):
        batch.session("a", client=None)  # type: ignore[arg-type]


class Waits:
    """Of one's own: starts only when four wait."""

    SPEC: ClassVar[PolicySpec] = PolicySpec("waits", "in batches of four")
    next = FirstCome.next

    def admit(self, queue: Queue) -> Sequence[str]:
        return in_order(queue.waiting) if len(queue.waiting) >= 4 else []


def test_a_policy_of_ones_own_runs_and_who_waits_under_it_is_told() -> None:
    with null_model_without_mlx().batch(policy=Waits, max_tokens=3, stop_tokens=()) as batch:
        held = [batch.session("a") for _ in range(6)]
        batch.run()
        assert {unit.running for unit in batch.outcome().units} == {6}
        held.append(batch.session("a"))
        with pytest.raises(SessionFailed, match="1 waiting that waits admits none of"):
            held[-1].run()
