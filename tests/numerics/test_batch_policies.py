"""Policies on a batch of a real graph: rows are the same under each, and no array is within reach of one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import mlx.core as mx
import pytest

from labkit.engine.model import Model
from labkit.schedule.outcome import Unit
from labkit.schedule.policies import POLICIES
from labkit.schedule.queue import Queue, RequestState
from tests.numerics.batch_rows import alone, assert_same, opened, prompt_of, read_all
from tests.numerics.tiny_models import LLAMA, tiny_model
from tests.unit.policy_spy import Spy

LENGTHS = (40, 3, 90, 17, 1, 60)


@pytest.fixture(scope="module")
def llama() -> Model:
    return tiny_model(LLAMA, mx.bfloat16)


def units_under(model: Model, policy: str) -> tuple[Unit, ...]:
    """Run six sessions of three clients as at most three rows; every one is what it is alone."""
    with model.batch(policy=policy, cap=3) as batch:
        sessions = [
            opened(batch, prompt_of(n, salt=i), client=f"c{i % 3}", max_tokens=6 + i)
            for i, n in enumerate(LENGTHS)
        ]
        steps = read_all(batch)
        units = batch.outcome().units
    for index, (session, length) in enumerate(zip(sessions, LENGTHS, strict=True)):
        assert_same(steps[session.name], alone(model, prompt_of(length, salt=index), max_tokens=6 + index))
    return units


def held_up(units: Sequence[Unit]) -> list[int]:
    """The units of prefill in the midst of a row's tokens, by their places."""
    decoded = [set(unit.ids) if unit.kind == "decode" else set[str]() for unit in units]
    return [
        place
        for place, unit in enumerate(units)
        if unit.kind == "prefill" and set().union(*decoded[:place]) & set().union(*decoded[place:])
    ]


@pytest.mark.parametrize("policy", [policy.SPEC.name for policy in POLICIES])
def test_rows_are_the_same_under_every_policy(llama: Model, policy: str) -> None:
    units = units_under(llama, policy)
    assert max(unit.running for unit in units) == 3
    places = held_up(units)
    at_once = any(late == early + 1 for early, late in pairwise(places))
    if policy == "decode-first":
        assert not places
    else:
        assert places
        assert at_once == (policy == "prefill-first")


def test_a_policy_cannot_reach_an_array(llama: Model) -> None:
    spy = Spy()
    with llama.batch(policy=spy, cap=2, kv_budget_bytes=1 << 24) as batch:
        held = [opened(batch, prompt_of(20 + i), client="c") for i in range(4)]
        branch = held[0].fork(seed=2)
        read_all(batch)
        spy.look(batch.queue)
    assert branch.finished
    assert spy.seen > 40
    assert spy.types <= {Queue, RequestState, tuple, str, int, float, type(None)}


def test_the_walk_would_find_an_array_that_was_there(llama: Model) -> None:
    """Else the test above would show nothing: a session is one step from its arrays."""
    spy = Spy()
    with llama.batch() as batch:
        session = opened(batch, prompt_of(20))
        while not session.tokens:
            batch.turn()
        spy.look(session)
    assert mx.array in spy.types
