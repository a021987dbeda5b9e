"""Load on the null model, whose every second is known: what clients see, by hand and by the simulator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from labkit.bench.load import check_load, is_served, run_load, serving_plan
from labkit.bench.load_client import ClientClock, Clients, Served, Worked
from labkit.bench.load_metrics import load_metrics, meets, tpot_s
from labkit.bench.load_requests import Load, load_of
from labkit.bench.load_server import EngineServer, Turn
from labkit.bench.visit import VisitSample, run_visit, workload_request
from labkit.core.arm import Arm, Workload
from labkit.core.errors import LabkitError, PlanRefused
from labkit.core.request import Request
from labkit.engine.load import null_model
from labkit.engine.model import Model
from labkit.model.null import VirtualClock
from labkit.schedule.arrivals import Arrival
from labkit.schedule.of_workload import arrivals_of
from labkit.schedule.outcome import Outcome, Timing
from labkit.schedule.policies import POLICIES, take_turns
from labkit.schedule.policy import PolicySpec, Work
from labkit.schedule.queue import Queue
from labkit.schedule.simulate import Costs, simulate

# Powers of two, so that sums of seconds are exact; rows of the null model are decoded one after the other.
SPEC = "null:prefill_tps=1024,decode_tps=64,kv_bytes_per_token=8"
COSTS = Costs(1 / 1024, lambda rows: rows / 64)
CLOSED = Workload(33, 5, concurrency=2, requests=5)
OPEN = Workload(
    300, 12, arrivals="poisson", rate_per_s=3.0, requests=20, prompt_tokens_low=4, new_tokens_low=2, seed=3
)


def no_memory() -> dict[str, float]:
    return {}


def served(arm: Arm, workload: Workload, seed: int = 0) -> Served:
    model = null_model(arm.model)
    load = load_of(model, arm, workload, seed)
    with EngineServer(model, arm, len(load.requests)) as server:
        clock = ClientClock(model.clock, model.graph.clock.advance)
        return Clients(load, server, clock, no_memory).run()


def visit(arm: Arm, workload: Workload, seed: int = 0) -> VisitSample:
    model = null_model(arm.model)
    return run_load(model, arm, workload, seed, no_memory, model.graph.clock.advance)


@pytest.mark.parametrize("cap", [1, 3])
@pytest.mark.parametrize("policy", [p.SPEC.name for p in POLICIES])
def test_an_open_loop_is_what_the_simulator_says(policy: str, cap: int) -> None:
    """The simulator turns the same scheduler over costs; the engine over the null model's own clock."""
    expected: Outcome = simulate(arrivals_of(OPEN), COSTS, policy=policy, cap=cap)
    found = served(Arm(SPEC, policy=policy, cap=cap), OPEN)
    assert [t.arrival_s for t in found.timings] == [t.arrival_s for t in expected.timings]
    for mine, simulated in zip(found.timings, expected.timings, strict=True):
        # A Poisson arrival is no power of two: what is added to it is rounded in its last bit.
        assert mine.token_s == pytest.approx(simulated.token_s, abs=1e-9)
    assert load_metrics(found, OPEN)["aggregate_tps"] < 64


def test_a_closed_loop_by_hand() -> None:
    """Two clients, fcfs: a prompt takes 32/1024 = 2/64 s, a step of two rows 2/64 s, of one 1/64 s."""
    found = served(Arm(SPEC), CLOSED)
    at = [[round(s * 64) for s in (t.arrival_s, *t.token_s)] for t in found.timings]
    assert at[0] == [0, 3, 7, 9, 11, 13]
    assert at[1] == [0, 7, 9, 11, 13, 17]
    # The third is sent once the first is answered, and read before the second has its last token.
    assert at[2][:2] == [13, 17]
    assert [row[0] for row in at[2:]] == [at[0][-1], at[1][-1], at[2][-1]]
    assert max(unit.rows for unit in found.units) == 2


def test_there_are_never_more_requests_than_clients() -> None:
    found = served(
        Arm(SPEC), Workload(20, 6, concurrency=3, requests=11, prompt_tokens_low=2, new_tokens_low=1)
    )
    moments = sorted([(t.arrival_s, 1) for t in found.timings] + [(t.token_s[-1], -1) for t in found.timings])
    assert max(np.cumsum([step for _, step in moments])) == 3
    lengths = {len(t.token_s) for t in found.timings}
    assert len(lengths) > 2 and lengths <= set(range(1, 7))


def test_a_lone_request_measures_what_a_session_does() -> None:
    workload, arm = Workload(257, 12), Arm(SPEC, policy="decode-first")
    model = null_model(SPEC)
    alone = run_visit(model, workload_request(model, Arm(SPEC), workload, 3), no_memory)
    shared = visit(arm, workload, 3)
    assert is_served(arm, workload) and not is_served(Arm(SPEC), workload)
    assert shared.metrics == alone.metrics
    assert (shared.tokens_hash, shared.decode_seconds) == (alone.tokens_hash, alone.decode_seconds)
    assert (shared.prefill_seconds, shared.start_s) == (alone.prefill_seconds, alone.start_s)


def test_the_tokens_of_all_requests_are_the_same_under_every_policy() -> None:
    hashes = {visit(Arm(SPEC, policy=p.SPEC.name, cap=2), OPEN).tokens_hash for p in POLICIES}
    assert len(hashes) == 1
    assert hashes != {visit(Arm(SPEC), OPEN, seed=1).tokens_hash}


def test_lengths_and_times_are_the_workloads_and_ids_the_visits() -> None:
    model = null_model(SPEC)
    first, again, other = (load_of(model, Arm(SPEC), OPEN, seed) for seed in (0, 0, 1))
    assert first == again
    assert first.arrivals == other.arrivals != load_of(model, Arm(SPEC), replace(OPEN, seed=4), 0).arrivals
    prompts = [request.prompt for load in (first, other) for request in load.requests]
    assert len(set(prompts)) == len(prompts)
    assert [len(request.prompt) for request in first.requests] == [a.prompt_tokens for a in first.arrivals]


def test_aggregate_decode_leaves_out_what_is_no_full_step() -> None:
    """All rows decode in steps of 4/64 s for 4 tokens, whatever else happens beside them."""
    found = visit(Arm(SPEC), Workload(200, 9, concurrency=4, requests=12))
    assert found.metrics["aggregate_decode_tps"] == pytest.approx(64.0)
    assert found.metrics["aggregate_tps"] < 40
    spread = visit(Arm(SPEC), Workload(200, 9, concurrency=4, requests=12, prompt_tokens_low=10))
    assert "aggregate_decode_tps" not in spread.metrics


def test_goodput_counts_the_requests_that_meet_every_objective() -> None:
    found = served(Arm(SPEC), CLOSED)
    firsts = sorted(t.ttft_s or 0.0 for t in found.timings)
    span = max(t.token_s[-1] for t in found.timings)
    strict = replace(CLOSED, ttft_objective_s=firsts[2])
    assert load_metrics(found, strict)["goodput_rps"] == sum(f <= firsts[2] for f in firsts) / span
    both = replace(strict, tpot_objective_s=1e-6)
    assert load_metrics(found, both)["goodput_rps"] == 0.0
    assert "goodput_rps" not in load_metrics(found, CLOSED)


TIMINGS = (
    Timing("a", "", 0.0, token_s=(1.0, 1.5, 2.0)),
    Timing("b", "", 1.0, token_s=(3.0,)),
    Timing("c", "", 10.0, token_s=(10.5, 11.0, 12.5)),
)


def by_hand(workload: Workload) -> dict[str, float]:
    return load_metrics(Served(TIMINGS, ((1, 2, 3), (4,), (5, 6, 7)), (), 100, {"peak_bytes": 7.0}), workload)


def test_metrics_by_hand() -> None:
    found = by_hand(replace(OPEN, ttft_objective_s=1.0, tpot_objective_s=0.75))
    ttft, e2e, itl, tpot = [1.0, 2.0, 0.5], [2.0, 2.0, 2.5], [0.5, 0.5, 0.5, 1.5], [0.5, 1.0]
    for name, samples, percents in (("ttft", ttft, (50, 95, 99)), ("e2e", e2e, (50, 95, 99))):
        for percent in percents:
            assert found[f"{name}_p{percent}_s"] == pytest.approx(np.percentile(samples, percent))
    assert found["itl_p95_s"] == pytest.approx(np.percentile(itl, 95))
    assert found["tpot_p99_s"] == pytest.approx(np.percentile(tpot, 99))
    assert found["ttft_s"] == pytest.approx(np.mean(ttft))
    # 7 tokens in the 3 + 2.5 s in which somebody waits; one request of three meets both objectives.
    assert found["aggregate_tps"] == pytest.approx(7 / 5.5)
    assert found["request_tps"] == pytest.approx(np.median([3 / 2.0, 1 / 2.0, 3 / 2.5]))
    assert found["goodput_rps"] == pytest.approx(1 / 12.5)
    assert (found["kv_bytes"], found["peak_bytes"]) == (100, 7.0)


def test_a_request_within_another_adds_no_time() -> None:
    timings = (Timing("a", "", 0.0, token_s=(1.0, 9.0)), Timing("b", "", 1.0, token_s=(2.0, 3.0)))
    found = load_metrics(Served(timings, ((1, 2), (3, 4)), (), 0, {}), OPEN)
    assert found["aggregate_tps"] == pytest.approx(4 / 9)


def test_full_steps_are_those_within_a_run_of_them() -> None:
    """Rows of 2, and now and then 1: the first and the last of each run of full steps do not count."""
    rows = (1, 2, 2, 2, 2, 1, 2, 2, 2)
    units = tuple(Worked(float(i), 2.0**i, r, r) for i, r in enumerate(rows))
    found = load_metrics(Served(TIMINGS, ((), (), ()), units, 0, {}), Workload(8, 8, concurrency=2))
    assert found["aggregate_decode_tps"] == pytest.approx(6 / (2.0**2 + 2.0**3 + 2.0**7))
    assert found["rows_mean"] == pytest.approx(sum(rows) / len(rows))


def test_a_request_of_one_token_has_no_time_per_output_token() -> None:
    assert tpot_s(TIMINGS[1]) is None
    assert meets(TIMINGS[1], replace(OPEN, tpot_objective_s=1e-9))
    assert not meets(TIMINGS[2], replace(OPEN, tpot_objective_s=0.75))


@dataclass
class Slow:
    """A server that gives one token of every open request a turn of 1 s, and notes when it is asked."""

    clock: VirtualClock
    asked: list[tuple[float, int]] = field(default_factory=list)
    left: dict[int, int] = field(default_factory=dict)

    def submit(self, index: int, request: Request) -> None:
        self.asked.append((self.clock(), index))
        self.left[index] = request.max_tokens

    def turn(self) -> Turn:
        self.clock.advance(1.0)
        came = dict.fromkeys(self.left, (7,))
        self.left = {index: left - 1 for index, left in self.left.items()}
        ended = tuple(index for index, left in self.left.items() if not left)
        self.left = {index: left for index, left in self.left.items() if left}
        return Turn(came, ended)

    def kv_bytes(self) -> int:
        return 10 * len(self.left)

    def __enter__(self) -> Slow:
        return self

    def __exit__(self, *_: object) -> None: ...


def on_slow(arrivals: Sequence[tuple[float, int]], meter_s: float = 0.0) -> tuple[Slow, Served]:
    clock = VirtualClock()

    def meter() -> dict[str, float]:
        clock.advance(meter_s)
        return {"footprint_bytes": clock()}

    server = Slow(clock)
    asked = tuple(Arrival(f"r{i}", at, 1, new) for i, (at, new) in enumerate(arrivals))
    load = Load(asked, tuple(Request((1,), a.max_tokens) for a in asked))
    return server, Clients(load, server, ClientClock(clock, clock.advance), meter).run()


def test_a_request_that_comes_within_a_turn_has_waited_since_it_was_due() -> None:
    server, found = on_slow([(0.25, 2), (0.5, 1), (9.0, 1)])
    assert server.asked == [(0.25, 0), (1.25, 1), (9.0, 2)]
    assert [(t.arrival_s, t.token_s) for t in found.timings] == [
        (0.25, (1.25, 2.25)),
        (0.5, (2.25,)),
        (9.0, (10.0,)),
    ]
    assert [unit.seconds for unit in found.units] == [1.0, 1.0, 1.0]


def test_reading_a_meter_takes_no_time_of_the_clients() -> None:
    plain, metered = on_slow([(0.0, 3)])[1], on_slow([(0.0, 3)], meter_s=50.0)[1]
    assert metered.timings == plain.timings
    # Read once before the last token, 50 s away by then, and once at the end.
    assert (plain.memory, metered.memory) == ({"footprint_bytes": 3.0}, {"footprint_bytes": 103.0})


def test_a_sample_of_a_load_survives_the_wire() -> None:
    sample = visit(Arm(SPEC), CLOSED)
    assert VisitSample.from_json(json.loads(json.dumps(sample.to_json()))) == sample
    assert sum(sample.decode_tokens) == 5 * 5
    assert sample.seconds == sum((*sample.prefill_seconds, *sample.decode_seconds))


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"kv_budget_bytes": 8 * 30}, "KV budget"),
        ({"policy": "lifo"}, "a policy that labkit knows"),
        ({"method": "mlx-lm-batch"}, "a method that runs on this model"),
        ({"cap": 0}, "cap"),
    ],
)
def test_what_can_never_be_answered_is_refused_before_anything_runs(
    stated: dict[str, Any], words: str
) -> None:
    model = null_model(SPEC)
    with pytest.raises(LabkitError, match=words):
        check_load(model, Arm(SPEC, **stated), CLOSED)
    assert model.clock() == 0.0


def test_a_budget_that_holds_one_row_is_enough() -> None:
    arm = Arm(SPEC, kv_budget_bytes=8 * 38)
    check_load(null_model(SPEC), arm, CLOSED)
    assert visit(arm, CLOSED).metrics["rows_mean"] == 1.0


def test_a_prompt_beyond_the_context_is_refused() -> None:
    with pytest.raises(PlanRefused, match="4096 tokens"):
        check_load(null_model(SPEC), Arm(SPEC), Workload(10**6, 4, concurrency=2))


def test_a_plan_says_how_requests_share() -> None:
    model: Model = null_model(SPEC)
    plan = model.resolve(workload_request(model, Arm(SPEC), CLOSED, 0))
    plain, stated = (serving_plan(arm, plan) for arm in (Arm(SPEC), Arm(SPEC, policy="fair", cap=2)))
    assert plain["plan"]["serving"] == {"policy": "fcfs", "kv_budget_bytes": None, "cap": 8}
    assert "policy fair, kv_budget_bytes none, cap 2" in stated["explain"]
    assert len({plan.hash(), plain["plan_hash"], stated["plan_hash"]}) == 3


def test_a_policy_of_ones_own_is_who_runs_next() -> None:
    """Last come, first served: defined here, so it travels by value and is named by its text."""

    class LastCome:
        SPEC: ClassVar[PolicySpec] = PolicySpec("last-come", "the newest request first")

        def admit(self, queue: Queue) -> Sequence[str]:
            return [r.id for r in reversed(queue.waiting)]

        def next(self, queue: Queue) -> Work:
            return take_turns(queue, queue.prefilling)

    arm = Arm.from_identity(json.loads(json.dumps(Arm(SPEC, policy=LastCome, cap=1).identity())))
    assert str(arm.policy).startswith("LastCome@") and "LastCome@" in arm.label()
    newest = served(arm, Workload(9, 2, concurrency=3))
    assert [t.token_s[0] for t in newest.timings] == sorted(
        (t.token_s[0] for t in newest.timings), reverse=True
    )
    oldest = served(
        Arm(SPEC, policy="labkit.schedule.policies:FirstCome", cap=1), Workload(9, 2, concurrency=3)
    )
    assert [t.token_s[0] for t in oldest.timings] == sorted(t.token_s[0] for t in oldest.timings)
