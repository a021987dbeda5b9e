"""`mixed` against mlx-optiq 0.7.7, bit for bit: its answers written down, and asked again where it is there.

mlx-optiq runs in a process of its own; see tests/optiq_oracle.py for what that needs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from labkit.core.kv_setting import KVSetting, LayerKV
from labkit.kv.base import describe
from labkit.kv.mixed import Mixed
from tests.kv_runs import run, run_on, setting
from tests.numerics.mixed_cases import CACHES, answers, cases, made_on, name
from tests.numerics.tiny_configs import TINY
from tests.numerics.tiny_models import tiny_graph, tiny_model
from tests.optiq_oracle import MISSING, Answer, Case, ask, available

ASKED = {name(case): case for case in cases()}


def ours(case: Case) -> Answer:
    graph = tiny_graph(TINY[case.model], mx.bfloat16)
    scheme = Mixed(setting(case, len(make_prompt_cache(graph))))
    return run(graph, scheme, case.prompt, chunk=case.chunk, tokens=case.tokens)


@pytest.mark.parametrize("asked", ASKED)
def test_equals_what_mlx_optiq_answered(asked: str) -> None:
    written = answers()
    made = {key: value for key, value in written["made on"].items() if key != "mlx-optiq"}
    if made != made_on() or mx.default_device() != mx.Device(mx.cpu):
        pytest.skip(f"the answers are of {made} on a CPU, and this is {made_on()} on {mx.default_device()}")
    answer, want = ours(ASKED[asked]), written["answers"][asked]
    assert answer.tokens == want["tokens"]
    assert answer.digest() == want["sha256 of logprobs"]


def test_every_case_is_written_down() -> None:
    assert set(answers()["answers"]) == set(ASKED)


@pytest.mark.skipif(not available(), reason=MISSING)
def test_equals_mlx_optiq() -> None:
    for case, want in zip(ASKED.values(), ask(list(ASKED.values())), strict=True):
        answer = ours(case)
        assert answer.tokens == want.tokens, name(case)
        assert answer.digest() == want.digest(), name(case)


@pytest.mark.parametrize("model", CACHES)
def test_a_session_by_name_is_that_run(model: str, tmp_path: Path) -> None:
    case = next(case for case in ASKED.values() if case.model == model and case.start == 24)
    fields = ("layer_idx", "bits", "group_size")
    file = tmp_path / "kv_config.json"
    file.write_text(json.dumps([dict(zip(fields, layer, strict=True)) for layer in case.layers]))
    session = tiny_model(TINY[model], mx.bfloat16).session(
        case.prompt,
        kv=f"mixed:{file}/start{case.start}",
        max_tokens=case.tokens,
        prefill_chunk=case.chunk,
        logprobs=True,
        stop_tokens=(),
    )
    steps: list[Any] = [step for step in session.steps() if step.tokens]
    rows = np.concatenate([np.array(step.logprobs.astype(mx.float32)) for step in steps])
    assert Answer(list(session.tokens), rows).digest() == ours(case).digest()


@pytest.mark.parametrize("model", CACHES)
def test_the_answers_would_show_other_bits(model: str) -> None:
    """Another width in one layer changes the log-probabilities."""
    case = next(case for case in ASKED.values() if case.model == model and len(case.prompt) == 50)
    layer, bits, group = case.layers[-1]
    other = (*case.layers[:-1], (layer, 8 if bits < 8 else 4, group))
    changed = Case(case.model, other, case.prompt, case.chunk, case.tokens, case.start)
    assert ours(changed).digest() != ours(case).digest()


def test_a_layer_that_is_not_listed_keeps_the_models_own_cache() -> None:
    graph = tiny_graph(TINY["gemma3_text"])
    kept: Any = (None, LayerKV(4, 4, 32), LayerKV(8, 4))
    scheme = Mixed(KVSetting("mixed", kept))
    caches = scheme.make(graph)
    run_on(graph, scheme, caches, range(20), chunk=16, tokens=2)
    assert [describe(cache) for cache in caches] == [
        "RotatingKVCache",
        "RotatingQuantizedKVCache(bits=4, group_size=32)",
        "SplitQuantizedKVCache(k_bits=8, v_bits=4, group_size=64)",
    ]
