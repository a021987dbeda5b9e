"""KV bytes as costed against the bytes of real caches, and ceilings on a clock that counts."""

from __future__ import annotations

import itertools
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ChunkedKVCache, make_prompt_cache

from labkit.core.kv_setting import KVSetting
from labkit.core.step import Step
from labkit.model.ceilings import measure_ceilings
from labkit.model.cost import kv_bytes_at, kv_bytes_per_token
from tests.numerics.tiny_configs import METAL_ONLY, TINY
from tests.numerics.tiny_models import GEMMA3, LLAMA, tiny_model

# mlx-lm allocates caches 256 tokens at a time, so 256 tokens leave no slack.
TOKENS = 256
PLAIN = KVSetting("bf16")
DTYPES = [mx.float32, mx.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kv", ["bf16", "affine:4", "affine:8", "affine:3/g32", "affine:8/s16"])
def test_full_caches_hold_what_they_are_costed_at(kv: str, dtype: mx.Dtype) -> None:
    model = tiny_model(LLAMA, dtype)
    with model.session([1] * (TOKENS + 1), kv=kv, max_tokens=1, prefill_chunk=TOKENS) as session:
        step = session.step()
        plan = session.plan
    assert isinstance(step, Step) and step.position == TOKENS
    assert step.kv_bytes == TOKENS * kv_bytes_per_token(model.profile, plan.kv_setting)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sliding_caches_hold_no_more_than_their_window(dtype: mx.Dtype) -> None:
    """A rotating cache is cut to its window by the first decode step after a longer chunk."""
    model = tiny_model(GEMMA3, dtype)
    with model.session([1] * TOKENS, max_tokens=1, stop_tokens=()) as session:
        session.run()
        assert session.kv_bytes == kv_bytes_at(model.profile, TOKENS, PLAIN)
    assert kv_bytes_at(model.profile, TOKENS, PLAIN) < TOKENS * kv_bytes_per_token(model.profile, PLAIN)


@pytest.mark.parametrize("name", [name for name in TINY if name not in METAL_ONLY])
def test_every_architecture_holds_what_it_is_costed_at(name: str) -> None:
    """A chunk and a step, after which a rotating cache is cut to its window."""
    model = tiny_model(TINY[name])
    caches = make_prompt_cache(model.graph)
    tokens = mx.arange(TOKENS)[None] % 250
    model.graph(tokens[:, :-1], cache=caches)
    model.graph(tokens[:, -1:], cache=caches)
    assert sum(map(held_bytes, caches)) == kv_bytes_at(model.profile, TOKENS, PLAIN)


def held_bytes(cache: Any) -> int:
    """As allocated, but without the 256 positions that a chunked cache adds to a window that is full."""
    if isinstance(cache, ChunkedKVCache):
        assert cache.keys is not None
        rows = cache.keys.shape[2]
        assert rows == cache.chunk_size + ChunkedKVCache.step
        return cache.nbytes // rows * cache.chunk_size
    return cache.nbytes


@pytest.mark.skipif(mx.default_device() != mx.Device(mx.cpu), reason="sizes of the CPU's products and reads")
def test_ceilings_count_operations_and_bytes_and_stop_when_time_is_up() -> None:
    """Every run takes one second of this clock: one product of 512, and a copy moves its 256 MiB twice."""
    readings = itertools.count()
    found = measure_ceilings("float32", lambda: float(next(readings)))
    assert (found.flops_per_s, found.bytes_per_s) == (2.0 * 512**3, 2.0 * 2**28)
    # Five ways to work, each timed once.
    assert next(readings) == 2 * 5
