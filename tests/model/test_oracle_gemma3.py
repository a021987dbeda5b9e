"""Oracle on the bundled sliding-window model: prompts within its 512-token window, up to it and past it."""

from __future__ import annotations

import pytest
from mlx_lm.models.cache import RotatingKVCache

from labkit.core.errors import PlanRefused
from labkit.core.kv_setting import LayerKV
from labkit.engine.model import Model
from labkit.kv.rotating_quantized import RotatingQuantizedKVCache
from tests.oracle import assert_equals_generate_step, random_prompt

WINDOW = 512


@pytest.mark.parametrize(
    ("length", "chunk"),
    [(1, 256), (2, 256), (257, 256), (258, 256), (WINDOW - 2, 256), (WINDOW + 88, 256), (WINDOW + 88, 2048)],
)
def test_equals_generate_step(gemma3: Model, length: int, chunk: int) -> None:
    """Of 510 tokens, the decoding passes the window."""
    prompt = random_prompt(gemma3, length)
    assert_equals_generate_step(gemma3, prompt, kv="bf16", chunk=chunk, tokens=6)


def test_the_profile_is_what_the_checkpoint_is(gemma3: Model) -> None:
    profile = gemma3.profile
    assert (profile.architecture, profile.status) == ("gemma3_text", "registered")
    assert profile.layers == (("sliding",) * 5 + ("full",)) * 3
    assert (profile.sliding_window, profile.heads, profile.kv_heads, profile.head_dim) == (WINDOW, 4, 1, 256)
    assert (profile.hidden_size, profile.vocab_size, profile.context_length) == (640, 262144, 32768)


@pytest.mark.parametrize("kv", ["affine:8", "affine:4/g128", "affine:8/start300"])
def test_codes_equal_mlx_lm_once_it_has_a_quantized_ring(
    gemma3: Model, kv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mlx-lm raises on a ring to be quantized, so it gets labkit's; mlx-optiq has its own: test_optiq.py."""

    def to_quantized(ring: RotatingKVCache, group_size: int = 64, bits: int = 4) -> RotatingQuantizedKVCache:
        return RotatingQuantizedKVCache.of(ring, LayerKV(bits, bits, group_size))

    monkeypatch.setattr(RotatingKVCache, "to_quantized", to_quantized)
    prompt = random_prompt(gemma3, WINDOW - 2)
    assert_equals_generate_step(gemma3, prompt, kv=kv, chunk=256, tokens=6)


def test_a_group_that_no_head_has_is_refused(gemma3: Model) -> None:
    with pytest.raises(PlanRefused, match="'affine:8/g256'"):
        gemma3.session([1, 2, 3], kv="affine:8/g256", max_tokens=4)
