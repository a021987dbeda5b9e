"""Metrics of a visit from its steps, on the null model, where every time is known."""

from __future__ import annotations

import psutil
import pytest

from labkit.bench.quiet import Usage, standing_probes, usage, visit_probes
from labkit.bench.visit import _timings, run_visit, workload_request
from labkit.core.arm import Arm, Workload
from labkit.core.errors import LabkitError
from labkit.engine.load import null_model

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


def test_first_and_last_decode_steps_are_left_out_of_the_rate() -> None:
    """A pipelined method waits for two forwards in its first step and for none in its last."""

    found = _timings((), (0.2, 0.1, 0.1, 0.1, 0.0), 1)
    assert found["decode_tps"] == pytest.approx(10.0)
    assert found["itl_p99_s"] == pytest.approx(0.1)


def test_the_prompt_depends_on_both_seeds_only() -> None:
    model = null_model(SPEC)

    def prompt(workload_seed: int, seed: int) -> tuple[int, ...]:
        return workload_request(model, Arm(SPEC), Workload(20, 4, seed=workload_seed), seed).prompt

    assert prompt(0, 0) == prompt(0, 0)
    assert len({prompt(0, 0), prompt(0, 1), prompt(1, 0)}) == 3


def test_concurrency_is_refused_until_there_is_a_batch_engine() -> None:
    model = null_model(SPEC)
    with pytest.raises(LabkitError, match="concurrency 1"):
        workload_request(model, Arm(SPEC), Workload(8, 8, concurrency=2), 0)


def test_foreign_work_is_what_the_machine_did_and_we_did_not() -> None:
    before, after = Usage(100.0, 10.0, 0), Usage(104.0, 13.0, 0)

    cores = psutil.cpu_count() or 1
    share, growth = visit_probes(before, after, seconds=2.0)
    assert share.value == pytest.approx(1.0 / (2.0 * cores))
    assert growth.ok


def test_a_visit_shorter_than_the_clock_ticks_is_not_judged() -> None:
    share, _ = visit_probes(Usage(0.0, 0.0, 0), Usage(9.0, 0.0, 0), seconds=0.01)
    assert (share.available, share.ok) == (False, True)


def test_probes_say_value_limit_and_advice() -> None:
    probes = standing_probes(seconds=0.1)
    assert [p.name for p in probes] == ["busy_cores", "swap_used_mib", "memory_free_share"]
    assert all(p.limit > 0 and p.advice for p in probes)
    assert usage(()).machine_busy_s > 0
