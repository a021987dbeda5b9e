"""Predicted memory against what mlx allocates, on random models of many widths, chunks and schemes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from labkit.core.errors import ModelUnavailable, PlanRefused
from labkit.core.kv_setting import KVSetting
from labkit.engine.model import Model
from labkit.lab.verifying.fit import fit
from labkit.model import budget
from labkit.model.budget import device_budget, stated_budget
from labkit.model.calibrate import Calibration
from labkit.model.fit_caches import forwards, held
from labkit.model.fit_matrices import Matrix
from labkit.model.fit_memory import predict_peak, widths
from labkit.model.fit_speed import Work
from labkit.model.primitives import count_primitives
from tests.numerics.tiny_models import GEMMA3, LLAMA, MAMBA, tiny_model

ON_CPU = mx.default_device() == mx.Device(mx.cpu)
# Wide enough that what a layer holds is far above the tokens and positions, which are not predicted; deep
# enough that layers follow one another, since of the last one prefill computes keys and values alone.
LARGE: dict[str, Any] = {
    **LLAMA,
    "hidden_size": 256,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
SHAPES: dict[str, dict[str, Any]] = {
    "plain": LARGE,
    "wide mlp": {**LARGE, "intermediate_size": 2048},
    "wide hidden": {**LARGE, "hidden_size": 1024},
    "many heads": {**LARGE, "num_attention_heads": 12, "num_key_value_heads": 4},
    "large heads": {**LARGE, "head_dim": 256},
    "large vocabulary": {**LARGE, "vocab_size": 50_000},
    "sliding": {**GEMMA3, "hidden_size": 256, "intermediate_size": 512, "sliding_window": 300},
}
CELLS = [("bf16", 900, 256), ("bf16", 600, 64), ("bf16", 300, 1024)]
QUANTIZED = [("affine:8", 900, 256)]


@dataclass(frozen=True)
class Measured:
    """Device bytes beyond those before the run, and the bytes of the caches at the end."""

    peak: float
    kv: float


def measure(model: Model, prompt: int, new: int, kv: str, chunk: int) -> Measured:
    tokens = [i % 200 for i in range(prompt)]
    session = model.session(tokens, kv=kv, max_tokens=new, stop_tokens=(), prefill_chunk=chunk)
    mx.clear_cache()
    mx.synchronize()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    session.run()
    return Measured(mx.get_peak_memory() - before, session.kv_bytes)


def setting_of(model: Model, kv: str) -> KVSetting:
    return model.resolve(model.request([1], kv=kv, max_tokens=1)).kv_setting


def matrices(model: Model) -> tuple[Matrix, ...]:
    """The same that the artifact's tensors would say."""
    from mlx.utils import tree_flatten

    flat: Any = tree_flatten(model.graph.parameters())
    return tuple(Matrix(*w.shape, nbytes=w.nbytes) for _, w in flat if w.ndim == 2)


@pytest.mark.skipif(not ON_CPU, reason="counts what a CPU writes out")
@pytest.mark.parametrize(
    ("shape", "kv", "prompt", "chunk"),
    [(shape, *cell) for shape in SHAPES for cell in CELLS]
    + [(shape, *cell) for shape in ("plain", "wide mlp", "many heads") for cell in QUANTIZED],
)
def test_the_peak_beyond_the_weights_is_predicted(shape: str, kv: str, prompt: int, chunk: int) -> None:
    """At most 10% too little, for what is not counted (masks, positions), and 40% too much.

    What is counted is all that a layer writes; the device frees some of it while the rest is still being
    queued, the more the slower the host is. Weights included the bound is 10% either way
    (tests/model/test_fit_bundled.py).
    """
    model = tiny_model(SHAPES[shape])
    found = measure(model, prompt, 4, kv, chunk)
    setting, wide = setting_of(model, kv), widths(model.profile, matrices(model), 4, "cpu")
    expected = predict_peak(model.profile, wide, setting, 0, prompt_tokens=prompt, new_tokens=4, chunk=chunk)
    assert expected.kv_bytes == found.kv
    assert 0.9 * found.peak < expected.peak_bytes < 1.4 * found.peak


@pytest.mark.parametrize("config", [LLAMA, GEMMA3], ids=["llama", "gemma3"])
@pytest.mark.parametrize("chunk", [7, 100, 256])
@pytest.mark.parametrize("prompt", [1, 30, 257, 600])
@pytest.mark.parametrize("kv", ["bf16", "affine:4/g32/s16/start30"])
def test_room_is_what_caches_allocate_after_every_forward(
    config: dict[str, Any], chunk: int, prompt: int, kv: str
) -> None:
    model = tiny_model(config)
    tokens = [i % 200 for i in range(prompt)]
    with model.session(tokens, kv=kv, max_tokens=3, stop_tokens=(), prefill_chunk=chunk) as session:
        measured = [step.kv_bytes for step in session.steps()]
    predicted = [h.room_bytes for h in held(model.profile, setting_of(model, kv), forwards(prompt, 3, chunk))]
    # A decode step is reported when the one after it has been queued already.
    before = len(measured) - 3
    assert measured[:before] == predicted[:before]
    assert measured[before:] == [predicted[before + 1], predicted[-1], predicted[-1]]


def test_primitives_are_counted_without_running_any() -> None:
    model = tiny_model(LLAMA)
    plain, quantized = (
        count_primitives(model.graph, scheme.make, scheme.settle)
        for scheme in (
            model.engine.scheme(model.resolve(model.request([1, 2], kv=kv, max_tokens=1)))
            for kv in ("bf16", "affine:8")
        )
    )
    # Seven projections and two products of attention a layer, and the output.
    assert plain["Matmul"] == 2 * 9 + 1
    assert (quantized["Matmul"], quantized["QuantizedMatmul"]) == (2 * 7 + 1, 2 * 2)


def test_counting_leaves_the_prefill_out() -> None:
    """A second layer adds as many primitives as the first has, so none belong to filling the caches."""
    counts = []
    for layers in (1, 2, 3):
        graph = tiny_model({**LLAMA, "num_hidden_layers": layers}).graph
        scheme = tiny_model(LLAMA).engine.schemes["bf16"](KVSetting("bf16"))
        counts.append(sum(count_primitives(graph, scheme.make, scheme.settle).values()))
    assert counts[2] - counts[1] == counts[1] - counts[0] > 50


def test_the_budget_is_a_share_of_the_memory_or_as_stated() -> None:
    assert stated_budget(2.5).nbytes == 2684354560
    found = device_budget("cpu")
    assert found.nbytes > 0 and "75% of" in found.reason


def test_the_budget_is_no_more_than_a_container_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(budget, "_LIMITS", (tmp_path / "none", limit))
    memory = device_budget("cpu")
    for unlimited in ("max", str(1 << 63)):
        limit.write_text(unlimited)
        assert device_budget("cpu") == memory
    limit.write_text("1048576000\n")
    assert device_budget("cpu") == budget.Budget(786432000, "75% of 1.0 GiB, this machine's memory")


def test_the_budget_of_metal_is_the_working_set_it_recommends(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"max_recommended_working_set_size": 3 << 30, "total_memory": 4 << 30}
    monkeypatch.setattr(mx, "device_info", lambda: facts)
    reason = "3.0 GiB, the working set that Metal recommends"
    assert device_budget("metal") == budget.Budget(3 << 30, reason)
    assert device_budget("cuda").nbytes == 3 << 30 and "the card's memory" in device_budget("cuda").reason
    assert "this machine's memory" in device_budget("cpu").reason


def test_a_decode_step_reads_its_weights_from_memory_however_many_rows_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With as many rows as a chunk has tokens: 12 copies of 4 MiB for the step, one for the chunk."""

    def once(self: Calibration, work: Callable[[], None]) -> float:
        work()
        return 1.0

    monkeypatch.setattr(Calibration, "_median", once)
    bench = Calibration("float32", hidden=8, heads=1, chunk=4, rows=4)
    rates = bench.rates([(Matrix(1024, 1024, 4 << 20), 1)], (), Work(10, 99, {}))
    assert (rates.decode_products_s, rates.prefill_products_s) == (1 / 12, 1.0)


def test_a_null_model_takes_no_memory_and_is_refused() -> None:
    with pytest.raises(ModelUnavailable, match="a model with weights"):
        fit("null", context=100)


def test_the_planner_refuses_with_its_own_reason() -> None:
    with pytest.raises(PlanRefused, match="on layers 0-1 of tiny-mamba: recurrent"):
        fit(tiny_model(MAMBA), context=100, kv="affine:8")
    with pytest.raises(PlanRefused, match="at most 2048 tokens"):
        fit(tiny_model(LLAMA), context=10_000_000)
