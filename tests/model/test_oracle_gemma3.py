"""Oracle on the bundled sliding-window model: prompts within its 512-token window, up to it and past it."""

from __future__ import annotations

import pytest

from labkit.core.errors import PlanRefused
from labkit.engine.model import Model
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


def test_quantized_caches_are_refused_by_layer(gemma3: Model) -> None:
    with pytest.raises(PlanRefused, match=r"sliding layers 0, 1, 2, 3, 4, 6"):
        gemma3.session([1, 2, 3], kv="affine:8", max_tokens=4)
