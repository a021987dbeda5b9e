"""The oracle: labkit's session against mlx-lm's `generate_step`, bit for bit."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generate_step

from labkit.core.kv_setting import KVSetting
from labkit.engine.model import Model


def random_prompt(model: Model, length: int) -> list[int]:
    source = random.Random(length)
    return [source.randrange(model.profile.vocab_size) for _ in range(length)]


def assert_equals_generate_step(model: Model, prompt: list[int], *, kv: str, chunk: int, tokens: int) -> None:
    """Tokens and log-probabilities equal, at the same chunk boundaries."""
    session = model.session(
        prompt, kv=kv, max_tokens=tokens, prefill_chunk=chunk, logprobs=True, stop_tokens=()
    )
    options = _quantized(session.plan.kv_setting)
    expected = list(
        generate_step(mx.array(prompt), model.graph, max_tokens=tokens, prefill_step_size=chunk, **options)
    )
    steps = [step for step in session.steps() if step.kind == "decode"]
    assert [step.tokens[0] for step in steps] == [int(token) for token, _ in expected]
    assert len(steps) == tokens
    for index, (step, (_, logprobs)) in enumerate(zip(steps, expected, strict=True)):
        assert mx.array_equal(step.logprobs[0], logprobs), f"log-probabilities differ at token {index}"


def _quantized(setting: KVSetting) -> dict[str, Any]:
    """What `generate_step` takes for a setting that is the same in every layer."""
    kept = setting.layer(0)
    if kept is None:
        return {}
    assert set(setting.layers) == {kept}
    # mlx-lm starts to quantize at 5,000 tokens unless told otherwise.
    start = {"quantized_kv_start": setting.start}
    return {"kv_bits": kept.k_bits, "kv_group_size": kept.group_size, **start}
