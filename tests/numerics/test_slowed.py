"""The `slowed` method: the tokens of the method that it slows, each step longer by its share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from labkit.core.errors import PlanRefused
from labkit.core.step import Step
from labkit.engine.slowed import SlowedRun
from tests.numerics.tiny_models import LLAMA, tiny_model


@pytest.mark.parametrize("kv", ["bf16", "affine:8"])
def test_its_tokens_and_log_probabilities_are_the_same(kv: str) -> None:
    model = tiny_model(LLAMA)
    steps = {}
    for method in (None, "slowed:0", "slowed:0.10"):
        session = model.session(list(range(1, 90)), kv=kv, max_tokens=9, logprobs=True, method=method)
        rows = [np.array(step.logprobs) for step in session.steps() if step.kind == "decode"]
        steps[method] = session.tokens, np.concatenate(rows).tobytes()
    assert steps[None] == steps["slowed:0"] == steps["slowed:0.10"]


class Ticking:
    """A clock that each reading moves on, and an execution whose steps take a second of it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.left = 3

    def __call__(self) -> float:
        self.now += 1e-4
        return self.now

    def advance(self) -> Step | None:
        if not self.left:
            return None
        self.left -= 1
        self.now += 1.0
        return Step("decode", (7,), None, 1.0, 0, 1, 0)

    def verify(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("share", [0.0, 0.03, 0.1, 1.0])
def test_each_step_takes_longer_by_its_share(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Ticking()

    def asleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr("labkit.engine.slowed.time.sleep", asleep)
    run = SlowedRun(clock, clock, share)
    seconds = list(steps_of(run))
    # The clock moves 0.1 ms a reading, and some ten are taken in a step.
    assert seconds == pytest.approx([1.0 + share] * 3, abs=2e-3)


def steps_of(run: SlowedRun) -> Iterator[float]:
    while isinstance(step := run.advance(), Step):
        yield step.seconds


@pytest.mark.parametrize(
    "method", ["slowed", "slowed:", "slowed:x", "slowed:-0.1", "slowed:nan", "slowed:inf"]
)
def test_a_share_that_is_none_is_refused_when_planned(method: str) -> None:
    with pytest.raises(PlanRefused, match="method: a share of 0 or more in its name, got"):
        tiny_model(LLAMA).session([1, 2], max_tokens=2, method=method)


def test_a_number_in_the_name_of_another_method_is_refused() -> None:
    with pytest.raises(PlanRefused, match=r"a method without a number in its name, got 'mlx-lm:3'"):
        tiny_model(LLAMA).session([1, 2], max_tokens=2, method="mlx-lm:3")


def test_the_plan_names_the_share() -> None:
    model = tiny_model(LLAMA)
    plans = [model.session([1, 2], max_tokens=2, method=m).plan for m in ("slowed:0.03", "slowed:0.10")]
    assert [plan.method for plan in plans] == ["slowed:0.03", "slowed:0.10"]
    assert plans[0].hash() != plans[1].hash()
