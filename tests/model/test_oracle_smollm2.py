"""Oracle on the bundled model: every scheme, prompt lengths around the chunk, two chunk sizes."""

from __future__ import annotations

import pytest

from labkit.engine.model import Model
from tests.oracle import assert_equals_generate_step, random_prompt


@pytest.mark.parametrize("chunk", [64, 2048])
@pytest.mark.parametrize("length", [1, 2, 255, 256, 257, 600])
@pytest.mark.parametrize("kv", ["bf16", "affine:4", "affine:8"])
def test_equals_generate_step(smollm2: Model, kv: str, length: int, chunk: int) -> None:
    assert_equals_generate_step(smollm2, random_prompt(smollm2, length), kv=kv, chunk=chunk, tokens=4)


@pytest.mark.parametrize("kv", ["bf16", "affine:8"])
def test_a_text_equals_generate_step(smollm2: Model, kv: str) -> None:
    """Text, whose log-probabilities are far from even, long enough that a cache grows while decoding."""
    prompt = list(smollm2.encode("The harbour was quiet and the lamps were lit. " * 22))
    assert len(prompt) < 256 < len(prompt) + 40
    assert_equals_generate_step(smollm2, prompt, kv=kv, chunk=256, tokens=40)
