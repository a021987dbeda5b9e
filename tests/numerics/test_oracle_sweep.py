"""The oracle over mlx-lm's registry: tiny random models of its architectures, bit-equal to `generate_step`.

What mlx-lm itself cannot run here is a strict xfail with its reason, so that support arriving is reported.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import QuantizedKVCache, RotatingKVCache, make_prompt_cache

from labkit.core.errors import ModelUnavailable
from labkit.core.kv_setting import LayerKV
from labkit.engine.model import Model
from labkit.kv.rotating_quantized import RotatingQuantizedKVCache
from labkit.model.registered import REGISTERED
from labkit.plan.reason import Refusal
from tests.numerics.tiny_base import WINDOW
from tests.numerics.tiny_configs import METAL_ONLY, TINY
from tests.numerics.tiny_models import classes_of, tiny_graph, tiny_model
from tests.oracle import assert_equals_generate_step, random_prompt

CHUNK = 16
ONE_CHUNK = 2048
TOKENS = 6
# All but the last token are prefilled: nothing, one, a chunk, a chunk and one; then decoding that passes the
# window, and a prompt that has passed it.
LENGTHS = (1, 2, CHUNK + 1, CHUNK + 2, WINDOW - 2, WINDOW + 18)
# One of each kind of cache and attention, for the dtype in which most checkpoints come.
IN_BF16 = (
    *("llama", "qwen3", "gemma2", "gemma3_text", "gemma4_text", "cohere2", "ministral3", "minicpm3"),
    *("youtu_llm", "mamba", "mamba2", "rwkv7", "lfm2", "olmo_hybrid", "falcon_h1", "recurrent_gemma"),
)
EXPERTS_IN_BF16 = ("mixtral", "deepseek_v3", "deepseek_v32", "gpt_oss", "llama4", "qwen3_next")


def case(name: str) -> Any:
    if name in METAL_ONLY and not mx.metal.is_available():
        mark = pytest.mark.xfail(strict=True, raises=ModelUnavailable, reason=METAL_ONLY[name])
        return pytest.param(name, marks=mark)
    return name


def last_logits(graph: Any, prompt: list[int]) -> mx.array:
    caches = make_prompt_cache(graph)
    graph(mx.array([prompt[:-1]]), cache=caches)
    return graph(mx.array([prompt[-1:]]), cache=caches)[0, -1]


@pytest.mark.parametrize("name", [case(name) for name in TINY])
def test_equals_generate_step(name: str) -> None:
    model = tiny_model(TINY[name])
    for length in LENGTHS:
        prompt = random_prompt(model, length)
        for chunk in (CHUNK, ONE_CHUNK) if length > CHUNK + 1 else (CHUNK,):
            assert_equals_generate_step(model, prompt, kv="bf16", chunk=chunk, tokens=TOKENS)


def experts_in_bf16(name: str) -> Any:
    on_cpu = mx.default_device() == mx.Device(mx.cpu)
    reason = "never on a CPU: MLX's gather_mm takes f32 there"
    return pytest.param(
        name, marks=pytest.mark.xfail(on_cpu, strict=True, raises=RuntimeError, reason=reason)
    )


@pytest.mark.parametrize("name", [*IN_BF16, *map(experts_in_bf16, EXPERTS_IN_BF16)])
def test_equals_generate_step_in_bf16(name: str) -> None:
    model = tiny_model(TINY[name], mx.bfloat16)
    for length in (1, CHUNK + 2, WINDOW + 18):
        assert_equals_generate_step(
            model, random_prompt(model, length), kv="bf16", chunk=CHUNK, tokens=TOKENS
        )


@pytest.mark.parametrize("name", [name for name in TINY if name not in METAL_ONLY])
def test_the_sweep_would_see_a_wrong_cache(name: str) -> None:
    """Equal logits whatever the past would make the sweep blind to the caches."""
    graph = tiny_graph(TINY[name])
    one, other = last_logits(graph, [1, 2, 3, 4, 5, 6, 7]), last_logits(graph, [9, 2, 8, 4, 77, 6, 7])
    assert not mx.any(mx.isnan(one))
    # Three orders of magnitude over what the order of f32 sums makes of logits of about 1.
    assert mx.max(mx.where(mx.isinf(one), 0, mx.abs(one - other))) > 1e-3


@pytest.mark.parametrize("name", [case(name) for name in TINY])
def test_affine_equals_mlx_lm_or_is_refused_where_mlx_lm_fails(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mlx-lm raises on a ring that is to be quantized, so it gets labkit's, whose own oracle is mlx-optiq."""
    model = tiny_model(TINY[name])
    plan = model.plan(model.request([1], kv="affine:8", max_tokens=TOKENS))
    prompt = random_prompt(model, WINDOW + 18)
    if isinstance(plan, Refusal):
        assert not quantizes_every_cache(model, prompt), plan.explain()
        return
    monkeypatch.setattr(RotatingKVCache, "to_quantized", quantized_ring)
    for length, chunk in ((1, CHUNK), (CHUNK + 2, CHUNK), (WINDOW + 18, ONE_CHUNK)):
        assert_equals_generate_step(
            model, random_prompt(model, length), kv="affine:8", chunk=chunk, tokens=TOKENS
        )


def quantized_ring(ring: RotatingKVCache, group_size: int = 64, bits: int = 4) -> Any:
    return RotatingQuantizedKVCache.of(ring, LayerKV(bits, bits, group_size))


def quantizes_every_cache(model: Model, prompt: list[int]) -> bool:
    """Whether mlx-lm runs with kv_bits and every cache is quantized at the end."""
    caches = make_prompt_cache(model.graph)
    steps = generate_step(
        mx.array(prompt), model.graph, max_tokens=2, prompt_cache=caches, kv_bits=8, quantized_kv_start=0
    )
    try:
        list(steps)
    except Exception:
        return False
    return all(isinstance(cache, QuantizedKVCache) for cache in caches)


def test_registered_is_what_the_sweep_runs_on() -> None:
    swept = {
        classes_of(TINY[name])[0].__module__.rpartition(".")[2] for name in TINY if name not in METAL_ONLY
    }
    assert swept == REGISTERED
