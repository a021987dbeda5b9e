"""`labkit.fit` on the bundled models: peak memory within 10% of what a run takes."""

from __future__ import annotations

import gc
import json
import subprocess
import sys

import pytest

import labkit
from labkit.bench.commands import ArmCommands
from labkit.bench.prediction import load_of, predictor_of
from labkit.bench.visit import run_visit, workload_request
from labkit.core.arm import Arm, Workload
from labkit.core.errors import PlanRefused
from labkit.engine.model import Model
from labkit.model.memory import peak_metrics, reset_peak

NEW = 6
SCHEMES = {"smollm2": ("bf16", "affine:8", "affine:4"), "gemma3-270m": ("bf16", "affine:8")}
CELLS = [(model, kv, context) for model, kvs in SCHEMES.items() for kv in kvs for context in (256, 1024)]


def measured_peak(model: Model, arm: Arm, workload: Workload) -> float:
    """Of a visit, less what this process holds for other models: those of other tests."""
    import mlx.core as mx

    gc.collect()
    mx.clear_cache()
    others = mx.get_active_memory() - model.artifact.artifact_bytes
    request = workload_request(model, arm, workload, 0)
    reset_peak()
    return run_visit(model, request, peak_metrics).metrics["peak_bytes"] - others


@pytest.fixture(scope="module")
def loaded() -> dict[str, Model]:
    return {}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kv", "context"), CELLS)
def test_the_peak_is_predicted(loaded: dict[str, Model], name: str, kv: str, context: int) -> None:
    """Within 10% of all, which the weights dominate here, and 25% of what lies beyond the weights.

    The second bound is of what is counted: all that a layer writes, of which the device frees some early.
    """
    if name not in loaded:
        loaded.clear()
        loaded[name] = labkit.load(name)
    model, arm = loaded[name], Arm(name, kv=kv)
    workload = Workload(context - NEW, NEW)
    plan = model.resolve(workload_request(model, arm, workload, 0))
    expected = predictor_of(model, plan).peak(load_of(plan, workload))
    found = measured_peak(model, arm, workload)
    assert expected.peak_bytes == pytest.approx(found, rel=0.10)
    weights = model.artifact.artifact_bytes
    assert expected.peak_bytes - weights == pytest.approx(found - weights, rel=0.25)


def test_a_scheme_that_no_layer_can_hold_is_refused_by_the_planner() -> None:
    with pytest.raises(PlanRefused, match="options that 'affine' has, got 'g256'"):
        labkit.fit("gemma3-270m", context=256, kv="affine:8/g256")


def test_the_weights_of_a_name_are_not_read() -> None:
    """What may not fit into memory must not be loaded to find that out: the process stays far below them."""
    code = """
import json, labkit
found = labkit.fit("gemma3-270m", context=512, memory_gib=1.1)
import mlx.core as mx
print(json.dumps([found.to_json(), mx.get_active_memory()]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found, active = json.loads(done.stdout)
    assert active < found["weight_bytes"] / 10
    assert found["fits"] and found["decode_tps"] > 0 and found["prefill_tps"] > 0
    assert 512 < found["largest_context"] < found["context_length"] == 32768


def test_a_worker_predicts_beside_its_roofline() -> None:
    """What a run records of an arm: a prediction is below the bound that the roofline gives."""
    workload = Workload(prompt_tokens=48, new_tokens=8)
    card = ArmCommands(Arm("smollm2")).roofline({"workload": workload.identity()})
    predicted = card["prediction"]
    assert set(predicted) == {"decode_tps", "prefill_tps", "peak_bytes", "kv_bytes"}
    assert predicted["kv_bytes"] == 256 * 30 * 2 * 3 * 64 * 4
    assert predicted["peak_bytes"] > card["weight_bytes"] + predicted["kv_bytes"]
    assert predicted["decode_tps"] > 0 and predicted["prefill_tps"] > 0
