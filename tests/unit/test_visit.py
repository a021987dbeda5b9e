"""Metrics of a visit from its steps, on the null model, where every time is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import psutil
import pytest

from labkit.bench.quiet import Usage, standing_probes, usage, visit_probes
from labkit.bench.visit import VisitSample, run_visit, workload_request
from labkit.core.arm import Arm, Workload
from labkit.core.errors import LabkitError
from labkit.core.request import Request
from labkit.core.step import Step, StepKind
from labkit.engine.load import null_model
from labkit.engine.model import Model
from labkit.engine.session import Session
from labkit.model.null import VirtualClock
from tests.unit.null_session import scripted_session

SPEC = "null:prefill_tps=1000,decode_tps=100,kv_bytes_per_token=10"


def metrics(workload: Workload, spec: str = SPEC) -> dict[str, float]:
    model = null_model(spec)
    return run_visit(
        model, workload_request(model, Arm(spec), workload, 0), lambda: {"peak_bytes": 7.0}
    ).metrics


def test_rates_latencies_and_bytes() -> None:
    found = metrics(Workload(101, 12))
    expected = {
        "prefill_tps": 1000.0,
        "decode_tps": 100.0,
        "ttft_s": 0.1 + 0.01,
        "itl_p50_s": 0.01,
        "itl_p95_s": 0.01,
        "itl_p99_s": 0.01,
        "kv_bytes": 10 * (101 + 12),
        "peak_bytes": 7.0,
    }
    assert found == pytest.approx(expected)


def test_what_cannot_be_measured_is_absent() -> None:
    found = metrics(Workload(1, 2))
    assert {"prefill_tps", "decode_tps", "itl_p50_s"}.isdisjoint(found)
    assert found["ttft_s"] == pytest.approx(0.01)


Move = tuple[StepKind, float, int]
PREFILL: Move = ("prefill", 0.1, 0)


def decode(seconds: float, tokens: int) -> Move:
    return "decode", seconds, tokens


@dataclass
class Scripted:
    """A model, and an execution, that does what a script says: (kind, seconds, number of tokens) a step."""

    script: Sequence[Move]
    clock: VirtualClock = field(default_factory=VirtualClock)
    closed: bool = False
    done: int = 0

    def open(self, request: Request) -> Session:
        return scripted_session(self, max_tokens=request.max_tokens)

    def advance(self) -> Step | None:
        kind, seconds, tokens = self.script[self.done]
        self.done += 1
        self.clock.advance(seconds)
        return Step(kind, (7,) * tokens, None, seconds, 100 * self.done, 1, self.done)

    def verify(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def scripted_visit(
    script: Sequence[Move],
    meter: Callable[[Scripted], dict[str, float]] = lambda model: {},
) -> VisitSample:
    model = Scripted(script)
    request = Request((1,) * 11, sum(tokens for _, _, tokens in script))
    return run_visit(cast(Model, model), request, lambda: meter(model))


def test_one_token_a_step_leaves_out_the_first_and_the_last() -> None:
    """A pipelined method waits for two forwards in its first step and for none in its last."""
    sample = scripted_visit([PREFILL, *(decode(s, 1) for s in (0.2, 0.1, 0.1, 0.1, 0.0))])
    found = sample.metrics
    assert found["prefill_tps"] == pytest.approx(10 / 0.1)
    assert found["ttft_s"] == pytest.approx(0.3)
    assert found["decode_tps"] == pytest.approx(10.0)
    assert found["itl_p99_s"] == pytest.approx(0.1)
    assert sample.decode_tokens == (1, 1, 1, 1, 1)


def test_two_tokens_a_step_are_twice_the_rate_and_half_the_latency() -> None:
    sample = scripted_visit([decode(0.1, 2)] * 6)
    assert sample.metrics["decode_tps"] == pytest.approx(20.0)
    assert sample.metrics["itl_p50_s"] == pytest.approx(0.05)
    assert sample.metrics["itl_p99_s"] == pytest.approx(0.05)
    assert sample.decode_tokens == (2,) * 6
    assert sample.decode_seconds == pytest.approx((0.1,) * 6)


def test_a_step_of_many_tokens_weighs_as_many_latencies() -> None:
    """Steady: 0.4 s for 4 tokens and 0.3 s for one; 4 of 5 latencies are 0.1 s."""
    found = scripted_visit([decode(s, n) for s, n in ((1.0, 1), (0.4, 4), (0.3, 1), (1.0, 1))]).metrics
    assert found["decode_tps"] == pytest.approx(5 / 0.7)
    assert found["itl_p50_s"] == pytest.approx(0.1)


def test_steps_without_tokens_are_waited_for_by_the_next_tokens() -> None:
    """A denoising iteration or a rejected draft commits nothing."""
    script = [decode(0.1, 0), decode(0.1, 1)] * 4
    found = scripted_visit(script).metrics
    assert found["ttft_s"] == pytest.approx(0.2)
    assert found["decode_tps"] == pytest.approx(5.0)
    assert found["itl_p99_s"] == pytest.approx(0.2)


@pytest.mark.parametrize("waiting", [0, 5])
def test_a_final_output_only_method_has_no_decode_rate(waiting: int) -> None:
    sample = scripted_visit([*[decode(0.1, 0)] * waiting, decode(0.3, 8)])
    assert {"decode_tps", "itl_p50_s", "prefill_tps"}.isdisjoint(sample.metrics)
    assert sample.metrics["ttft_s"] == pytest.approx(0.1 * waiting + 0.3)
    assert sum(sample.decode_tokens) == 8


@pytest.mark.parametrize("tokens", [1, 2])
def test_memory_is_read_while_the_caches_are_full_and_outside_what_is_timed(tokens: int) -> None:
    def meter(model: Scripted) -> dict[str, float]:
        model.clock.advance(1000.0)
        return {"footprint_bytes": 0.0 if model.closed else float(model.done)}

    sample = scripted_visit([PREFILL, *[decode(0.1, tokens)] * 4], meter)
    assert sample.metrics["footprint_bytes"] == 4
    assert sample.decode_seconds == pytest.approx((0.1,) * 4)
    assert sample.seconds == pytest.approx(0.5)


def test_memory_of_a_single_token_is_read_before_its_step() -> None:
    sample = scripted_visit(
        [PREFILL, decode(0.1, 1)],
        lambda model: {"footprint_bytes": 0.0 if model.closed else 9.0},
    )
    assert sample.metrics["footprint_bytes"] == 9


def test_a_sample_survives_the_wire() -> None:
    sample = scripted_visit([PREFILL, *[decode(0.1, 2)] * 3])
    assert VisitSample.from_json(json.loads(json.dumps(sample.to_json()))) == sample


def test_the_prompt_depends_on_both_seeds_only() -> None:
    model = null_model(SPEC)

    def prompt(workload_seed: int, seed: int) -> tuple[int, ...]:
        return workload_request(model, Arm(SPEC), Workload(20, 4, seed=workload_seed), seed).prompt

    assert prompt(0, 0) == prompt(0, 0)
    assert len({prompt(0, 0), prompt(0, 1), prompt(1, 0)}) == 3


def test_foreign_work_is_what_the_machine_did_and_we_did_not() -> None:
    before, after = Usage(100.0, 10.0, 0), Usage(104.0, 13.0, 0)

    cores = psutil.cpu_count() or 1
    share, growth, _ = visit_probes(before, after, seconds=2.0)
    assert share.value == pytest.approx(1.0 / (2.0 * cores))
    assert growth.ok


def test_a_visit_shorter_than_the_clock_ticks_is_not_judged() -> None:
    share, *_ = visit_probes(Usage(0.0, 0.0, 0), Usage(9.0, 0.0, 0), seconds=0.01)
    assert (share.available, share.ok) == (False, True)


def test_probes_say_value_limit_and_advice() -> None:
    probes = standing_probes(seconds=0.1)
    judging = [p for p in probes if p.role == "judges"]
    assert [p.name for p in judging[:3]] == ["busy_cores", "swap_used_mib", "memory_free_share"]
    assert all(p.limit > 0 and p.advice for p in judging[:3])
    assert all(p.ok for p in probes if p.role != "judges")
    assert usage(()).machine_busy_s > 0


def test_a_prompt_beyond_the_context_is_refused_at_once() -> None:
    model = null_model(SPEC)
    with pytest.raises(LabkitError, match=r"context of null.*4096 tokens"):
        workload_request(model, Arm(SPEC), Workload(10**12, 4), 0)
