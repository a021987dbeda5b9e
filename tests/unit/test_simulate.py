"""The simulator: a timeline by hand, invariants on random streams, and what each policy promises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.core.errors import LabkitError
from labkit.schedule.admission import Budget
from labkit.schedule.arrivals import Arrival, poisson
from labkit.schedule.outcome import Outcome, Timing, percentile
from labkit.schedule.policies import POLICIES, FirstCome, in_order
from labkit.schedule.policy import PolicyInvalid, PolicySpec
from labkit.schedule.queue import Queue
from labkit.schedule.simulate import Costs, simulate

NAMES = tuple(p.SPEC.name for p in POLICIES)
# Powers of two, so that sums of seconds are exact and can be compared as equal.
COSTS = Costs(1 / 1024, lambda rows: (4 + rows) / 64)
BYTES = 4


def ended(outcome: Outcome, name: str) -> Timing:
    return next(t for t in outcome.timings if t.id == name)


def test_a_timeline_by_hand() -> None:
    """Chunks of 64 cost 1/16 s, a decode step 5/64 s for one row and 6/64 s for two."""
    arrivals = [Arrival("b", 0.125, 65, 2), Arrival("a", 0.0, 129, 9, new_tokens=3)]
    outcome = simulate(arrivals, COSTS, prefill_chunk=64, budget=Budget(1000, lambda n: BYTES * n))
    told = [(u.kind, u.start_s, u.seconds, u.ids, u.running) for u in outcome.units]
    assert told == [
        ("prefill", 0.0, 4 / 64, ("a",), 1),
        ("prefill", 4 / 64, 4 / 64, ("a",), 1),
        ("decode", 8 / 64, 6 / 64 - 1 / 64, ("a",), 2),
        ("prefill", 13 / 64, 4 / 64, ("b",), 2),
        ("decode", 17 / 64, 6 / 64, ("a", "b"), 2),
        ("decode", 23 / 64, 6 / 64, ("a", "b"), 2),
    ]
    a, b = outcome.timings
    assert (a.id, a.wait_s, a.ttft_s, a.itl_s) == ("a", 0.0, 13 / 64, (10 / 64, 6 / 64))
    assert (b.wait_s, b.ttft_s, b.latency_s) == (0.0, 15 / 64, 21 / 64)
    assert [u.reserved_bytes for u in outcome.units] == [552, 552, 820, 820, 820, 820]
    assert [u.kv_bytes for u in outcome.units] == [256, 512, 516, 772, 780, 788]
    summary = outcome.summary()
    assert (summary["aggregate_tps"], summary["peak_rows"], summary["max_wait_s"]) == (5 / (29 / 64), 2, 0.0)


def test_seconds_may_be_numbers_of_numpy() -> None:
    costs = Costs(np.float64(1 / 1024), lambda rows: np.float64((4 + rows) / 64))
    arrivals = [Arrival("a", 0.5, 65, 2), Arrival("b", 0.5, 65, 2)]
    assert simulate([replace(a, at_s=np.float64(0.5)) for a in arrivals], costs) == simulate(arrivals, COSTS)


tokens = st.integers(1, 40)
streams = st.lists(
    st.tuples(st.integers(0, 64), tokens, tokens, tokens, st.sampled_from("xyz")), min_size=1, max_size=25
)


@pytest.mark.parametrize("policy", NAMES)
@settings(max_examples=60, deadline=None)
@given(stream=streams, cap=st.integers(1, 5), chunk=st.integers(1, 30), limit=st.integers(1, 500))
def test_invariants_on_random_streams(
    policy: str, stream: list[tuple[int, int, int, int, str]], cap: int, chunk: int, limit: int
) -> None:
    arrivals = [
        Arrival(f"r{i}", at / 16, prompt, most, min(most, new), client)
        for i, (at, prompt, most, new, client) in enumerate(stream)
    ]
    budget = Budget(limit, lambda n: BYTES * n)
    outcome = simulate(arrivals, COSTS, policy=policy, cap=cap, prefill_chunk=chunk, budget=budget)
    assert sorted(t.id for t in outcome.timings) == sorted(a.id for a in arrivals)
    for a in arrivals:
        _check_request(a, outcome, limit)
    for unit in outcome.units:
        assert len(unit.ids) <= unit.running <= cap
        assert unit.kv_bytes <= unit.reserved_bytes <= limit
    for early, late in pairwise(outcome.units):
        idle = late.start_s - (early.start_s + early.seconds)
        # Idle only until somebody comes who was not there.
        assert idle == 0 or (idle > 0 and late.start_s in {a.at_s for a in arrivals})
    again = simulate(arrivals, COSTS, policy=policy, cap=cap, prefill_chunk=chunk, budget=budget)
    assert again == outcome


def _check_request(a: Arrival, outcome: Outcome, limit: int) -> None:
    """It is refused, or it ends once: read in whole chunks, then one token a step."""
    timing, units = ended(outcome, a.id), [u for u in outcome.units if a.id in u.ids]
    if timing.refused:
        assert BYTES * (a.prompt_tokens + a.max_tokens) > limit
        assert not units and timing.admitted_s is None
        return
    assert timing.admitted_s is not None and timing.admitted_s >= a.at_s
    assert len(timing.token_s) == a.tokens
    decoded = [u.start_s + u.seconds for u in units if u.kind == "decode"]
    assert tuple(decoded) == timing.token_s
    read = sum(round(u.seconds * 1024) for u in units if u.kind == "prefill")
    assert read == a.prompt_tokens - 1


def flood(count: int, new: int) -> list[Arrival]:
    """Short prompts that keep two rows busy, and a long one that comes early."""
    short = [Arrival(f"s{i}", i / 16, 9, new, client="flood") for i in range(count)]
    return [*short, Arrival("long", 0.5, 2000, 4, client="patient")]


@pytest.mark.parametrize("new", [1, 2, 4])
def test_under_fair_nobody_waits_longer_because_more_come(new: int) -> None:
    """A wait that grows with the stream is starvation; of the stream's own requests it is a queue."""
    waits = {
        policy: [
            ended(simulate(flood(n, new), COSTS, policy=policy, cap=2), "long").latency_s for n in (60, 240)
        ]
        for policy in ("fair", "shortest-prompt")
    }
    assert waits["fair"][0] == waits["fair"][1]
    starved = waits["shortest-prompt"]
    assert starved[0] is not None and starved[1] is not None and starved[1] > 3 * starved[0]


@settings(max_examples=60, deadline=None)
@given(stream=streams, cap=st.integers(1, 4))
def test_fair_is_in_turn_among_rows_and_in_order_within_a_client(
    stream: list[tuple[int, int, int, int, str]], cap: int
) -> None:
    arrivals = [Arrival(f"r{i}", s[0] / 16, 20 * s[1], s[2], client=s[4]) for i, s in enumerate(stream)]
    outcome = simulate(arrivals, COSTS, policy="fair", cap=cap, prefill_chunk=16)
    for client in "xyz":
        of_client = [t for t in outcome.timings if t.client == client]
        admitted = [t.admitted_s or 0.0 for t in of_client]
        assert admitted == sorted(admitted)
    chunks = [u.ids[0] for u in outcome.units if u.kind == "prefill"]
    for name in set(chunks):
        places = [i for i, served in enumerate(chunks) if served == name]
        # Each other row of the cap may have one turn between two of a row's own.
        assert all(late - early <= cap for early, late in pairwise(places))


STEADY = [Arrival("row", 0.0, 2, 200), Arrival("prompt", 1.0, 2001, 2)]


@pytest.mark.parametrize(
    ("policy", "worst_s"),
    [
        ("decode-first", 5 / 64),  # nothing comes between
        ("fcfs", 6 / 64 + 250 / 1024),  # a chunk comes between
        ("fair", 6 / 64 + 250 / 1024),
        ("prefill-first", 6 / 64 + 2000 / 1024),  # the whole prompt comes between
    ],
)
def test_how_long_a_running_row_is_held_up(policy: str, worst_s: float) -> None:
    outcome = simulate(STEADY, COSTS, policy=policy, prefill_chunk=250)
    held_up = max(ended(outcome, "row").itl_s)
    # The step after a chunk runs one row until the prompt is read, so it may be 1/64 s shorter.
    assert worst_s - 1 / 64 <= held_up <= worst_s


def test_the_first_token_comes_in_the_order_of_eagerness() -> None:
    ttft = {p: ended(simulate(STEADY, COSTS, policy=p), "prompt").ttft_s or 0.0 for p in NAMES}
    assert ttft["prefill-first"] < ttft["fcfs"] == ttft["fair"] < ttft["decode-first"]


def test_shortest_prompt_lowers_the_mean_wait() -> None:
    arrivals = [Arrival(f"r{i}", 0.0, n, 4) for i, n in enumerate((2000, 1000, 500, 100))]
    mean = {
        p: sum(t.ttft_s or 0.0 for t in simulate(arrivals, COSTS, policy=p, cap=1).timings)
        for p in ("fcfs", "shortest-prompt")
    }
    assert mean["shortest-prompt"] < mean["fcfs"]


def test_a_request_that_never_fits_is_refused_and_the_others_run() -> None:
    arrivals = [Arrival("huge", 0.0, 1000, 1), Arrival("small", 0.0, 10, 5)]
    outcome = simulate(arrivals, COSTS, budget=Budget(100, lambda n: BYTES * n))
    assert "4004 bytes" in ended(outcome, "huge").refused
    assert len(ended(outcome, "small").token_s) == 5
    summary = outcome.summary()
    assert (summary["completed"], summary["refused"]) == (1, 1)


class Waits:
    """Of one's own: starts only when four wait."""

    SPEC: ClassVar[PolicySpec] = PolicySpec("waits", "in batches of four")
    next = FirstCome.next

    def admit(self, queue: Queue) -> Sequence[str]:
        return in_order(queue.waiting) if len(queue.waiting) >= 4 else []


def test_a_policy_of_ones_own_runs_and_is_told_when_it_leaves_requests_waiting() -> None:
    arrivals = [Arrival(f"r{i}", i / 4, 10, 5) for i in range(6)]
    outcome = simulate(arrivals[:4], COSTS, policy=Waits)
    assert outcome.policy == "waits"
    assert {t.admitted_s for t in outcome.timings} == {0.75}
    with pytest.raises(PolicyInvalid, match=r"none of 2 waiting"):
        simulate(arrivals, COSTS, policy=Waits)


@pytest.mark.parametrize(
    ("cap", "chunk", "names"), [(0, 1, ("a", "b")), (1, 0, ("a", "b")), (1, 1, ("a", "a"))]
)
def test_settings_that_cannot_be_are_refused(cap: int, chunk: int, names: tuple[str, ...]) -> None:
    arrivals = [Arrival(name, 0.0, 1, 1) for name in names]
    with pytest.raises(LabkitError, match="an id for each request"):
        simulate(arrivals, COSTS, cap=cap, prefill_chunk=chunk)


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_costs_that_cannot_be_are_refused(seconds: float) -> None:
    for costs in (Costs(seconds, lambda _: 1.0), Costs(1.0, lambda _: seconds)):
        with pytest.raises(LabkitError, match="seconds of 0 or more"):
            simulate([Arrival("a", 0.0, 10, 1)], costs)


@pytest.mark.parametrize(
    "wrong",
    [
        {"at_s": -1.0},
        {"at_s": math.nan},
        {"at_s": math.inf},
        {"prompt_tokens": 0},
        {"max_tokens": 0},
        {"new_tokens": 0},
        {"new_tokens": 6},
    ],
)
def test_arrivals_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(LabkitError):
        Arrival(**{"id": "a", "at_s": 0.0, "prompt_tokens": 1, "max_tokens": 5, **wrong})


def test_poisson_is_seeded_and_has_its_rate() -> None:
    made = poisson(5.0, 4000, prompt_tokens=(10, 20), max_tokens=3, seed=1, clients=2)
    assert made == poisson(5.0, 4000, prompt_tokens=(10, 20), max_tokens=3, seed=1, clients=2)
    assert made[:9] != poisson(5.0, 9, prompt_tokens=(10, 20), max_tokens=3, seed=2, clients=2)
    # An exponential's standard deviation is its mean: four standard errors of 4000 gaps.
    assert abs(made[-1].at_s / 4000 - 0.2) < 4 * 0.2 / math.sqrt(4000)
    assert {a.prompt_tokens for a in made} == set(range(10, 21))
    assert [a.client for a in made[:3]] == ["c0", "c1", "c0"]
    for wrong in ({"rate_per_s": 0.0}, {"count": -1}, {"clients": 0}, {"prompt_tokens": (2, 1)}):
        with pytest.raises(LabkitError):
            poisson(**{"rate_per_s": 1.0, "count": 3, **wrong})


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.sampled_from([0, 50, 95, 99, 100]))
def test_percentiles_are_those_of_numpy(samples: list[float], percent: int) -> None:
    # Two orders of the same interpolation: a few roundings of numbers up to 1e6.
    assert percentile([*samples, None], percent) == pytest.approx(np.percentile(samples, percent), abs=1e-8)


def test_nothing_comes_of_nothing() -> None:
    outcome = simulate([], COSTS)
    summary = outcome.summary()
    assert summary["completed"] == 0 and math.isnan(summary["ttft_p50_s"])
    assert math.isnan(summary["aggregate_tps"])
