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
