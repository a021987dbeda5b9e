"""Two requests at a time on SmolLM2: labkit's batch engine and mlx-lm's BatchGenerator as two arms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from labkit.bench.load import run_load
from labkit.bench.parity import measure_parity
from labkit.bench.visit import workload_request
from labkit.core.arm import Arm, Workload
from labkit.core.errors import PlanRefused
from labkit.core.records import Record
from labkit.engine.model import Model
from labkit.lab.loading.pair import load_pair
from labkit.lab.measuring.parity import describe, parity
from labkit.lab.measuring.run import run
from labkit.lab.reading.show import check_shown, predictions

TWO = Workload(prompt_tokens=24, new_tokens=8, concurrency=2)
UPSTREAM = Arm("smollm2", method="mlx-lm-batch")


def test_two_requests_against_mlx_lms_batches(tmp_path: Path) -> None:
    made = load_pair(UPSTREAM, Arm("smollm2", policy="prefill-first"), TWO, pairs=1)
    record = run(made, root=tmp_path, lease=tmp_path / "lease", floor=False).record
    good = [visit for visit in record.visits if visit.status == "ok"]
    # Both are greedy on the same weights and BLAS, so their tokens are the same.
    assert len(good) == 2 and len({visit.tokens_hash for visit in good}) == 1
    for arm in record.arms:
        assert {axis for axis in made.hypothesis.holds if axis not in arm.metrics} == set()
        assert arm.metrics["rows_mean"].value > 1 and arm.metrics["peak_bytes"].value > 0
    compared = record.parity["candidate"]["oracles"]["mlx-lm kv=bf16"]
    assert "several requests at a time are not compared" in describe(compared)
    assert list(record.parity["candidate"]["oracles"]) == ["mlx-lm kv=bf16"]
    said = {each.metric for each in predictions(record)}
    assert said == {"aggregate_decode_tps", "peak_bytes", "kv_bytes"}
    check_shown(Record.from_json(json.loads(json.dumps(record.to_json()))))


def test_a_lone_request_has_the_tokens_of_a_session_in_either_engine(smollm2: Model) -> None:
    model, one = smollm2, Workload(24, 6)
    found = [run_load(model, arm, one, 0, dict) for arm in (UPSTREAM, Arm("smollm2", policy="fcfs"))]
    request = workload_request(model, Arm("smollm2"), one, 0)
    session = model.open(request)
    session.run()
    steps = list(model.open(request.changed(method="mlx-lm-batch")).steps())
    assert tuple(token for step in steps for token in step.tokens) == session.tokens
    assert len({sample.tokens_hash for sample in found}) == 1
    assert {"decode_tps", "prefill_tps", "ttft_s"} <= set(found[0].metrics) & set(found[1].metrics)


def test_a_lone_row_of_the_batch_engine_equals_mlx_lm(smollm2: Model) -> None:
    answer = measure_parity(smollm2, Arm("smollm2", policy="fcfs"), Workload(24, 6))
    compared = parity({"baseline": answer})["baseline"]
    assert compared["equals"] == ["mlx-lm kv=bf16"]


def test_batch_generator_has_no_quantized_caches(smollm2: Model) -> None:
    with pytest.raises(PlanRefused, match="mlx-lm-batch"):
        smollm2.session([1, 2, 3], kv="affine:8", method="mlx-lm-batch")
