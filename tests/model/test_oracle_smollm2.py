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


@pytest.mark.parametrize("kv", ["affine:2", "affine:3/g32", "affine:5", "affine:6/g32"])
def test_other_widths_and_groups_equal_generate_step(smollm2: Model, kv: str) -> None:
    assert_equals_generate_step(smollm2, random_prompt(smollm2, 100), kv=kv, chunk=64, tokens=4)


@pytest.mark.parametrize("start", [50, 64, 102, 5000])
def test_a_start_equals_generate_step(smollm2: Model, start: int) -> None:
    """Within a chunk, at its end, while decoding, never."""
    prompt = random_prompt(smollm2, 100)
    assert_equals_generate_step(smollm2, prompt, kv=f"affine:4/start{start}", chunk=64, tokens=4)


def test_bytes_of_a_token_of_8_bits(smollm2: Model) -> None:
    """At the same room in f32: 72 of 256 bytes for a head of 64, and 68 with scales of 16 bits."""
    found = {}
    for kv in ("bf16", "affine:8", "affine:8/s16"):
        session = smollm2.session(random_prompt(smollm2, 40), kv=kv, max_tokens=2, stop_tokens=())
        session.run()
        found[kv] = session.kv_bytes
    assert smollm2.profile.dtype == "float32"
    assert found["affine:8"] <= 0.285 * found["bf16"]
    assert found["affine:8/s16"] <= 0.27 * found["bf16"]


@pytest.mark.parametrize("kv", ["bf16", "affine:8"])
def test_a_text_equals_generate_step(smollm2: Model, kv: str) -> None:
    """Text, whose log-probabilities are far from even, long enough that a cache grows while decoding."""
    prompt = list(smollm2.encode("The harbour was quiet and the lamps were lit. " * 22))
    assert len(prompt) < 256 < len(prompt) + 40
    assert_equals_generate_step(smollm2, prompt, kv=kv, chunk=256, tokens=40)
