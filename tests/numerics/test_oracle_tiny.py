"""Oracle on tiny random models: a llama, and a gemma3 whose sliding window is passed."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache

from labkit.core.errors import PlanRefused, SessionFailed
from labkit.kv.affine import Affine
from labkit.kv.plain import Plain
from tests.numerics.tiny_configs import TINY
from tests.numerics.tiny_models import GEMMA3, LLAMA, tiny_model
from tests.oracle import assert_equals_generate_step, random_prompt

LENGTHS = (1, 2, 31, 33, 64, 65, 300)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("chunk", [64, 2048])
@pytest.mark.parametrize("config", [LLAMA, GEMMA3], ids=["llama", "gemma3"])
def test_plain_kv(config: dict, chunk: int, dtype: mx.Dtype) -> None:
    model = tiny_model(config, dtype)
    for length in LENGTHS:
        prompt = random_prompt(model, length)
        assert_equals_generate_step(model, prompt, kv="bf16", chunk=chunk, tokens=8)


@pytest.mark.parametrize("kv", ["affine:4", "affine:8"])
def test_affine_kv(kv: str) -> None:
    model = tiny_model(LLAMA)
    for length in LENGTHS:
        assert_equals_generate_step(model, random_prompt(model, length), kv=kv, chunk=64, tokens=8)


def test_mlx_lm_is_refused_a_quantized_ring_which_it_does_not_have() -> None:
    with pytest.raises(PlanRefused, match="kv: one setting for every layer, all of them full"):
        tiny_model(GEMMA3).session([1, 2, 3], kv="affine:8", method="mlx-lm", max_tokens=4)


def test_the_caches_are_what_the_plan_said() -> None:
    session = tiny_model(LLAMA).session(list(range(1, 20)), kv="affine:8", max_tokens=2)
    assert session.plan.cache_layout == ("QuantizedKVCache(bits=8, group_size=64)",) * 2
    session.run()
    assert session.state == "completed"


def test_a_scheme_that_does_not_settle_is_caught() -> None:
    """The trap of `quantized_kv_start`: asked for 8 bits, ran with none."""
    model = tiny_model(LLAMA)

    class Forgetful(Affine):
        def settle(self, caches: list) -> None:
            pass

    model.engine.schemes["affine"] = Forgetful  # type: ignore[index]
    session = model.session([1, 2, 3], kv="affine:8", max_tokens=2, stop_tokens=())
    with pytest.raises(SessionFailed, match=r"layer 0 should hold QuantizedKVCache\(bits=8"):
        session.run()


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("deepseek_v3", ("KVCache",) * 2),
        ("deepseek_v32", ("CacheList",) * 2),
        ("llama4", ("ChunkedKVCache",) * 3 + ("KVCache",)),
        ("qwen3_next", ("ArraysCache", "KVCache")),
        ("nemotron_h", ("ArraysCache", "KVCache")),
    ],
)
def test_the_plain_layout_is_the_models_own(name: str, layout: tuple[str, ...]) -> None:
    model = tiny_model(TINY[name])
    session = model.session([1, 2, 3], max_tokens=2, stop_tokens=())
    assert session.plan.cache_layout == layout
    session.run()
    assert session.state == "completed"


@pytest.mark.parametrize(
    ("name", "layer"),
    [("gemma3_text", "0 should hold RotatingKVCache"), ("qwen3_next", "0 should hold Arrays")],
)
def test_plain_caches_that_are_not_the_models_own_are_caught(name: str, layer: str) -> None:
    model = tiny_model(TINY[name])

    class Swapped(Plain):
        """The right caches for the model, the wrong ones for the check."""

        def settle(self, caches: list[Any]) -> None:
            caches[0] = KVCache()

    model.engine.schemes["bf16"] = Swapped  # type: ignore[index]
    session = model.session([1], max_tokens=1, stop_tokens=())
    with pytest.raises(SessionFailed, match=f"layer {layer}"):
        session.run()
