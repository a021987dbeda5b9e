"""KV bytes as costed against the bytes of real caches, and ceilings on a clock that counts."""

from __future__ import annotations

import itertools

import mlx.core as mx
import pytest

from labkit.core.step import Step
from labkit.model.ceilings import measure_ceilings
from labkit.model.cost import kv_bytes_at, kv_bytes_per_token
from tests.numerics.tiny_models import GEMMA3, LLAMA, tiny_model

# mlx-lm allocates caches 256 tokens at a time, so 256 tokens leave no slack.
TOKENS = 256
DTYPES = [mx.float32, mx.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kv", ["bf16", "affine:4", "affine:8"])
def test_full_caches_hold_what_they_are_costed_at(kv: str, dtype: mx.Dtype) -> None:
    model = tiny_model(LLAMA, dtype)
    with model.session([1] * (TOKENS + 1), kv=kv, max_tokens=1, prefill_chunk=TOKENS) as session:
        step = session.step()
        plan = session.plan
    assert isinstance(step, Step) and step.position == TOKENS
    assert step.kv_bytes == TOKENS * kv_bytes_per_token(model.profile, plan.kv_bits, plan.kv_group_size)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sliding_caches_hold_no_more_than_their_window(dtype: mx.Dtype) -> None:
    """A rotating cache is cut to its window by the first decode step after a longer chunk."""
    model = tiny_model(GEMMA3, dtype)
    with model.session([1] * TOKENS, max_tokens=1, stop_tokens=()) as session:
        session.run()
        assert session.kv_bytes == kv_bytes_at(model.profile, TOKENS, None, None)
    assert kv_bytes_at(model.profile, TOKENS, None, None) < TOKENS * kv_bytes_per_token(
        model.profile, None, None
    )


@pytest.mark.skipif(mx.default_device() != mx.Device(mx.cpu), reason="sizes of the CPU's products and reads")
def test_ceilings_count_operations_and_bytes_and_stop_when_time_is_up() -> None:
    """Every run takes one second of this clock: one product of 512, and a copy moves its 256 MiB twice."""
    readings = itertools.count()
    found = measure_ceilings("float32", lambda: float(next(readings)))
    assert (found.flops_per_s, found.bytes_per_s) == (2.0 * 512**3, 2.0 * 2**28)
    # Five ways to work, each timed once.
    assert next(readings) == 2 * 5
