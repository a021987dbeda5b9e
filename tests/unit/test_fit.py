"""Predicted memory and speed by hand, and what `labkit.fit` refuses. Imports no mlx."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import labkit
from labkit.bench.prediction import load_of
from labkit.core.arm import Workload
from labkit.core.errors import LabkitError
from labkit.lab.verifying.fit import Fit
from labkit.model.calibrate import Calibration
from labkit.model.fit import Load, Predictor
from labkit.model.fit_matrices import Matrix, Packing, read_matrices
from labkit.model.fit_memory import Widths, largest_context, predict_peak, widths
from labkit.model.fit_speed import AttentionTime, Rates, Work, decode_step, prefill_chunk
from labkit.model.tensors import Tensor
from tests.unit.test_cost import GEMMA, LLAMA, PLAIN, ROW

WIDE = Widths(hidden=64, query=64, kv=32, inner=200, heads=4, vocab=1000, item_bytes=2, fused=False)
GIB = 1 << 30


def tensor(name: str, *shape: int, dtype: str = "BF16", width: int = 2) -> Tensor:
    size = 1
    for side in shape:
        size *= side
    return Tensor(name, dtype, shape, Path(), 0, size * width)


def matrices(*tensors: Tensor, config: Mapping[str, object] | None = None) -> dict[Matrix, int]:
    return dict(read_matrices({t.name: t for t in tensors}, config or {}, LLAMA))


def test_matrices_are_grouped_and_a_table_that_is_looked_up_is_not_one() -> None:
    up = [tensor(f"layers.{i}.up_proj.weight", 200, 64) for i in range(2)]
    table, head = tensor("embed_tokens.weight", 1000, 64), tensor("lm_head.weight", 1000, 64)
    kinds = {Matrix(200, 64, 25600): 2, Matrix(1000, 64, 128000): 1}
    assert matrices(*up, table) == kinds
    assert matrices(*up, table, head, tensor("norm.weight", 64)) == kinds


def test_packed_weights_are_read_with_their_scales() -> None:
    words = tensor("layers.0.up_proj.weight", 200, 8, dtype="U32", width=4)
    beside = [tensor(f"layers.0.up_proj.{leaf}", 200, 1) for leaf in ("scales", "biases")]
    stated = {"quantization": {"bits": 4, "group_size": 64}}
    found = matrices(words, *beside, config=stated)
    assert found == {Matrix(200, 64, 200 * (8 * 4 + 2 * 2), packing=Packing(4, 64)): 1}


def test_a_token_is_multiplied_with_the_experts_it_is_sent_to() -> None:
    mixed = replace(LLAMA, moe=(0, 1), experts=8, experts_per_token=2)
    stacked = tensor("layers.0.switch_mlp.up_proj.weight", 8, 200, 64)
    single = tensor("layers.0.mlp.experts.3.up_proj.weight", 200, 64)
    other = tensor("conv.weight", 3, 5, 64)
    found = dict(read_matrices({t.name: t for t in (stacked, single, other)}, {}, mixed))
    assert found == {Matrix(200, 64, 25600, used=2.0): 1, Matrix(200, 64, 25600, used=0.25): 1}


def test_widths_come_from_the_caches_and_the_widest_matrix_but_the_output() -> None:
    kinds = (Matrix(200, 64, 25600), Matrix(1000, 64, 128000), Matrix(64, 200, 25600))
    found = widths(LLAMA, kinds, 2, "cpu")
    assert found == WIDE
    assert not widths(LLAMA, kinds, 2, "metal").fused  # 16 wide: no fused kernel has that
    head = replace(ROW, key_size=64, value_size=64)
    assert widths(replace(LLAMA, caches=(head,)), kinds, 2, "metal").fused


def test_a_layer_in_flight_holds_what_its_operations_write() -> None:
    """Gate and up; 5 hidden, 4 of queries, 3 of keys and values; 2 of each in f32 where nothing is fused."""
    plain = 2 * 200 + 5 * 64 + 4 * 64 + 3 * 32
    assert WIDE.layer_bytes(10) == 10 * (plain * 2 + 2 * (64 + 64 + 32) * 4)
    fused = replace(WIDE, fused=True)
    assert fused.layer_bytes(10) == 10 * plain * 2
    assert WIDE.score_bytes(10, 50, quantized=False) == 10 * 50 * (4 * 2 + 1)
    assert fused.score_bytes(10, 50, quantized=False) == 0
    assert fused.score_bytes(10, 50, quantized=True) == 10 * 50 * (4 * 2 + 1)


def test_the_peak_is_weights_caches_and_the_largest_chunk() -> None:
    """1,023 tokens are prefilled in chunks of 256: the last of 255 sees them all, over 768 that it copies."""
    found = predict_peak(LLAMA, WIDE, PLAIN, 1000, prompt_tokens=1024, new_tokens=1, chunk=256)
    token = 2 * 32 * 2
    kv, copied = 2 * 1024 * token, (768 + 256) * token
    working = WIDE.layer_bytes(255) + WIDE.score_bytes(255, 1023, quantized=False) + copied
    assert (found.kv_bytes, found.working_bytes, found.at_tokens) == (kv, working, 1023)
    assert found.peak_bytes == 1000 + kv + working


def test_small_chunks_leave_the_peak_to_decoding_and_its_rows_of_logits() -> None:
    vast = replace(WIDE, vocab=10**6)
    found = predict_peak(LLAMA, vast, PLAIN, 0, prompt_tokens=20, new_tokens=3, chunk=4)
    assert found.working_bytes == 4 * 2 * 10**6
    assert found.at_tokens == 20


def test_requests_share_the_weights_and_nothing_else() -> None:
    alone, four = (
        predict_peak(LLAMA, WIDE, PLAIN, 10**6, prompt_tokens=900, new_tokens=9, chunk=256, rows=rows)
        for rows in (1, 4)
    )
    assert four.kv_bytes == 4 * alone.kv_bytes and four.weight_bytes == alone.weight_bytes
    # While the last one is prefilled the others hold their caches and nothing in flight; those of this
    # prompt are as large then as at the end, but for the layer that is being made anew.
    assert four.peak_bytes == alone.peak_bytes + 3 * 2 * 768 * (2 * 32 * 2)


def test_the_largest_context_is_found_at_the_edge() -> None:
    assert largest_context(lambda n: n <= 777, 4096) == 777
    assert largest_context(lambda n: True, 4096) == 4096
    assert largest_context(lambda n: n <= 1, 4096) == 1
    assert largest_context(lambda n: False, 4096) == 0


def test_a_larger_context_never_needs_less() -> None:
    """Else the search for the largest one would end in the wrong place."""
    for profile in (LLAMA, GEMMA):
        peaks = [
            predict_peak(profile, WIDE, PLAIN, 0, prompt_tokens=n, new_tokens=8, chunk=64).peak_bytes
            for n in range(1, 700)
        ]
        assert peaks == sorted(peaks)


def test_a_step_adds_up_products_attention_and_small_operations() -> None:
    work = Work(100, 1000, {"Matmul": 5, "Add": 10, "Exp": 2, "Reshape": 7})
    rates = Rates(0.5, 4.0, (AttentionTime(2, 0.01, 0.5),), 1e-3, 1e-4, 1e6, 1e5)
    step = decode_step(rates, work)
    assert step.seconds == pytest.approx(0.5 + 2 * 0.01 + 12e-3 + 7e-4)
    chunk = prefill_chunk(replace(LLAMA, depth=2), rates, layer_bytes=1e6, activated_bytes=1e5)
    # One layer of two: the last one only fills its cache.
    assert chunk.seconds == pytest.approx(4.0 / 2 + 0.5 + 2.0)


def test_requests_at_a_time_are_part_of_a_load() -> None:
    plan: Any = SimpleNamespace(prefill_chunk=64)
    assert load_of(plan, Workload(100, 20, 3)) == Load(100, 20, 64, rows=3)


def test_speed_is_measured_in_the_middle_of_the_new_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    note = lambda bench, _, caches, work: asked.append((bench.rows, bench.chunk, work.tokens))  # noqa: E731
    monkeypatch.setattr(Calibration, "rates", note)
    found = Predictor(LLAMA, 0, (), WIDE, PLAIN, {})
    found.calibrate(Load(100, 20, 64, rows=3))
    found.calibrate(Load(10, 1, 64))
    assert asked == [(3, 64, 110), (1, 9, 10)]


FIT = Fit(
    model="m<1>",
    kv="bf16",
    context=1024,
    new_tokens=32,
    concurrency=1,
    prefill_chunk=256,
    backend="cpu/mkl",
    peak_bytes=1.5 * GIB,
    weight_bytes=GIB,
    kv_bytes=GIB / 4,
    working_bytes=GIB / 4,
    decode_tps=20.0,
    prefill_tps=200.0,
    largest_context=900,
    context_length=8192,
    budget_bytes=GIB,
    budget="1 GiB as stated",
)


def test_a_fit_says_whether_it_fits() -> None:
    assert not FIT.fits and replace(FIT, budget_bytes=2 * GIB).fits
    assert repr(FIT) == "<Fit m<1> kv=bf16 at 1024: does not fit, 1.50 GiB, decode 20.0 tok/s>"
    assert dict(FIT.rows())["largest context"] == "900 tokens, what fits"
    assert FIT.to_json()["fits"] is False and FIT.to_json()["notes"] == []


def test_a_fit_shows_itself_without_letting_a_name_be_markup() -> None:
    shown = FIT._repr_html_()
    assert "m&lt;1&gt;" in shown and "m<1>" not in shown


def test_a_scheme_whose_bytes_nobody_stated_is_said_to_be_predicted_as_the_plain_one() -> None:
    (note,) = replace(FIT, kv="Ring@1a2b3c4d", unknown_bytes=True).notes()
    assert note == "kv=Ring@1a2b3c4d is predicted as if it kept the model's own dtype"


def test_several_requests_are_said_to_be_predicted_only() -> None:
    four = replace(FIT, concurrency=4)
    assert "predicted only" in four.notes()[0]
    assert dict(four.rows())["decode"] == "20.0 tok/s, 5.0 a request"
    assert "predicted only" in four._repr_html_()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context": 0}, "context: a whole number of at least 1"),
        ({"context": True}, "context: a whole number"),
        ({"context": 64, "concurrency": 0}, "concurrency: a whole number"),
        ({"context": 64, "new_tokens": 64}, "room for a prompt"),
        ({"context": 64, "concurrency": 1025}, "concurrency: at most 1024 requests"),
        ({"context": 64, "concurrency": 10**12}, "concurrency: at most 1024 requests"),
        ({"context": 64, "concurrency": 10**5000}, "concurrency: at most 1024 requests"),
        ({"context": 64, "memory_gib": 0.0}, "memory_gib: a positive number"),
        ({"context": 64, "memory_gib": 1e308}, "memory_gib: a positive number of GiB, at most 1,048,576"),
        ({"context": 64, "memory_gib": 10**400}, "memory_gib: a positive number"),
        ({"context": 64, "memory_gib": "8"}, "memory_gib: a positive number"),
        ({"context": 64, "memory_gib": float("nan")}, "memory_gib: a positive number"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_loaded(options: dict[str, Any], message: str) -> None:
    with pytest.raises(LabkitError, match=message):
        labkit.fit("no-such-model", **options)
