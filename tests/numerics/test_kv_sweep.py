"""Every architecture: a KV scheme that is planned runs to the end with the caches that the plan said, and one
that is not planned names its layers and the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from labkit.core.kv_setting import QUANTIZABLE
from labkit.engine.model import Model
from labkit.plan.reason import Refusal
from tests.numerics.tiny_configs import METAL_ONLY, TINY
from tests.numerics.tiny_models import tiny_model
from tests.oracle import random_prompt

NAMES = [name for name in TINY if name not in METAL_ONLY]
REASONS = (
    "recurrent, one state in place of keys and values",
    "caches with a quantized form",
    "a head size that is a multiple of the group size 32",
    "a trial step over quantized caches fails there",
)


# One of each kind of attention that reads codes, and with codes of a sliding window.
PLANNED = ("llama", "qwen3", "gemma3_text", "cohere2", "mixtral", "olmo2")


def split_file(model: Model, folder: Path) -> str:
    """Keys and values apart, of the layers that could hold codes at all."""
    caches = enumerate(model.profile.own_layout())
    fit = [layer for layer, name in caches if name in QUANTIZABLE]
    path = folder / "kv.json"
    entries = [{"layer_idx": layer, "k_bits": 8, "v_bits": 4, "group_size": 32} for layer in fit]
    path.write_text(json.dumps(entries))
    return f"mixed:{path}"


@pytest.mark.parametrize("name", NAMES)
def test_what_is_planned_runs(name: str, tmp_path: Path) -> None:
    model = tiny_model(TINY[name])
    prompt = random_prompt(model, 20)
    for kv in ("affine:4/g32/s16/start18", split_file(model, tmp_path)):
        plan = model.plan(model.request(prompt, kv=kv, max_tokens=4, stop_tokens=(), prefill_chunk=16))
        if isinstance(plan, Refusal):
            assert name not in PLANNED, plan.explain()
            assert any(reason in plan.explain() for reason in (*REASONS, "a list of at least one entry"))
            continue
        session = model.session(prompt, kv=kv, max_tokens=4, stop_tokens=(), prefill_chunk=16)
        session.run()
        assert session.state == "completed"
