"""Policies see plain frozen data, decide as they say, and are held to their word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from labkit.core.errors import LabkitError
from labkit.schedule.admission import Budget, fitting
from labkit.schedule.arrivals import Arrival
from labkit.schedule.catalog import find_policy
from labkit.schedule.policies import POLICIES, FirstCome
from labkit.schedule.policy import Decode, PolicyInvalid, PolicySpec, Prefill, Work
from labkit.schedule.queue import Queue, RequestState
from labkit.schedule.scheduler import Scheduler
from labkit.schedule.simulate import Costs, simulate
from tests.unit.policy_spy import Spy

NAMES = ("fcfs", "shortest-prompt", "decode-first", "prefill-first", "fair")


def state(name: str, at_s: float = 0.0, prompt: int = 100, **more: Any) -> RequestState:
    return RequestState(name, at_s, prompt, 10, **{"served_s": at_s, **more})


def queue(waiting: Sequence[RequestState] = (), running: Sequence[RequestState] = (), **more: Any) -> Queue:
    return Queue(1.0, tuple(waiting), tuple(running), **{"cap": 8, **more})


READ = state("read", prefilled=99)  # its last prompt token is decoded
HALF = state("half", 1.0, prefilled=50)
LONG = state("long", 0.5, prompt=900)


def test_every_policy_is_found_by_its_name_class_and_instance() -> None:
    assert tuple(p.SPEC.name for p in POLICIES) == NAMES
    for policy in POLICIES:
        for given in (policy.SPEC.name, policy, policy()):
            assert type(find_policy(given)) is policy


@pytest.mark.parametrize("given", ["lifo", "", object(), int, FirstCome.SPEC])
def test_what_is_no_policy_is_refused_with_the_names_there_are(given: Any) -> None:
    with pytest.raises(PolicyInvalid) as caught:
        find_policy(given)
    assert all(name in str(caught.value) for name in NAMES)


def test_nothing_but_plain_frozen_data_is_within_reach_of_a_policy() -> None:
    table = np.arange(1000.0)
    budget = Budget(10_000, lambda tokens: float(table[tokens]))
    spy = Spy()
    arrivals = [Arrival(f"r{i}", i / 10, 20 + i, 5, client="c") for i in range(9)]
    outcome = simulate(arrivals, Costs(0.001, lambda rows: 0.01 * rows), policy=spy, cap=3, budget=budget)
    assert len(outcome.timings) == 9 and spy.seen > 1000
    assert spy.types <= {Queue, RequestState, tuple, str, int, float, type(None)}


@pytest.mark.parametrize("value", [np.float32(1), np.zeros(2), [1], None, True, b"x"])
def test_a_request_state_holds_plain_values_only(value: Any) -> None:
    with pytest.raises(TypeError, match="kv_bytes"):
        replace(READ, kv_bytes=value)


@pytest.mark.parametrize("instance", [READ, queue([READ])])
def test_a_policy_can_change_nothing(instance: Any) -> None:
    assert not hasattr(instance, "__dict__")
    for field in fields(instance):
        with pytest.raises(FrozenInstanceError):
            setattr(instance, field.name, 0)


def admitted(name: str, *waiting: RequestState, running: Sequence[RequestState] = ()) -> str:
    return " ".join(find_policy(name).admit(queue(waiting, running)))


def test_whom_each_policy_admits_first() -> None:
    waiting = (HALF, LONG, READ)  # arrived at 1, 0.5 and 0
    for name in ("fcfs", "decode-first", "prefill-first", "fair"):
        assert admitted(name, *waiting) == "read long half"
    assert admitted("shortest-prompt", *waiting) == "read half long"


def test_fair_deals_rows_out_among_clients() -> None:
    flood = [state(f"a{i}", i / 10, client="a") for i in range(4)]
    late = [state(f"b{i}", 2.0 + i, client="b") for i in range(2)]
    assert admitted("fair", *flood, *late) == "a0 b0 a1 b1 a2 a3"
    rows = [state("a8", client="a"), state("a9", client="a")]
    assert admitted("fair", *flood, *late, running=rows) == "b0 b1 a0 a1 a2 a3"


@pytest.mark.parametrize(
    ("name", "after_prefill", "after_decode"),
    [
        ("fcfs", Decode(), Prefill("half")),
        ("shortest-prompt", Decode(), Prefill("half")),
        ("decode-first", Decode(), Decode()),
        ("prefill-first", Prefill("half"), Prefill("half")),
        ("fair", Decode(), Prefill("long")),  # served at 0.5, longest ago
    ],
)
def test_what_each_policy_does_next(name: str, after_prefill: Work, after_decode: Work) -> None:
    policy, rows = find_policy(name), (READ, HALF, LONG)
    assert policy.next(queue(running=rows, last="prefill")) == after_prefill
    assert policy.next(queue(running=rows, last="decode")) == after_decode
    for last in ("prefill", "decode"):
        assert policy.next(queue(running=(READ,), last=last)) == Decode()
        assert policy.next(queue(running=(HALF,), last=last)) == Prefill("half")


class Answers:
    """Gives the answers it was made with."""

    SPEC: ClassVar[PolicySpec] = PolicySpec("answers", "whatever it was told")

    def __init__(self, admit: Any, work: Any = None) -> None:
        self._admit, self._work = admit, work

    def admit(self, queue: Queue) -> Any:
        return self._admit

    def next(self, queue: Queue) -> Any:
        return self._work


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (["nobody"], "ids of waiting requests"),
        (["half"], "ids of waiting requests"),
        (["long", "long"], "twice"),
        (None, "a sequence of ids"),
        ("long", "a sequence of ids"),
        (iter(["long"]), "a sequence of ids"),
    ],
)
def test_an_admission_that_cannot_be_is_told(answer: Any, words: str) -> None:
    with pytest.raises(PolicyInvalid, match=f"policy answers: (.|\n)*{words}"):
        Scheduler(Answers(answer)).admit(queue([LONG], [HALF]))


@pytest.mark.parametrize("work", [Prefill("read"), Prefill("nobody"), None, "decode"])
def test_work_that_cannot_be_done_is_told_with_what_can(work: Any) -> None:
    with pytest.raises(PolicyInvalid, match=r"options: Prefill\('half'\), Decode\(\)"):
        Scheduler(Answers([], work)).next(queue(running=(READ, HALF)))
    with pytest.raises(PolicyInvalid):
        Scheduler(Answers([], Decode())).next(queue(running=(HALF,)))


def test_admission_fills_rows_and_bytes_and_lets_nobody_overtake() -> None:
    reserved = {"a": 40, "b": 70, "c": 10}
    names = list(reserved)

    def admitted(rows: int, free_bytes: int | None) -> list[str]:
        return fitting(names, reserved, rows=rows, free_bytes=free_bytes)

    assert admitted(8, None) == names
    assert admitted(2, None) == ["a", "b"]
    assert admitted(0, None) == admitted(-1, None) == []
    assert admitted(8, 120) == names
    assert admitted(8, 119) == ["a", "b"]
    assert admitted(8, 60) == ["a"]  # c would fit, b is before it
    assert admitted(8, 0) == []


def test_a_budget_reserves_what_a_row_can_grow_to_and_refuses_what_never_fits() -> None:
    budget = Budget(1000, lambda tokens: 10.0 * tokens - 0.5)
    assert budget.reserve(state("a", prompt=90)).reserved_bytes == 1000  # 999.5 for 100 tokens
    assert budget.refusal(state("a", prompt=90)) is None
    said = budget.refusal(state("a", prompt=91))
    assert said and "91 prompt and 10 new tokens may take 1010 bytes" in said and "1000" in said
    assert budget.free([state("a", reserved_bytes=300), state("b", reserved_bytes=1)]) == 699
    with pytest.raises(LabkitError, match="above 0 bytes"):
        Budget(0, float)
