"""Holding a session on every KV scheme: branches, rewinds and files go on as a whole run does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import labkit
from labkit.core.errors import SessionFailed
from labkit.core.step import Step
from labkit.core.taps import Taps
from labkit.engine.model import Model
from labkit.engine.session import Session
from labkit.kv.affine import Affine
from tests.numerics.rewinding import rewound
from tests.numerics.rotated_scheme import RotatedScheme
from tests.numerics.tiny_models import GEMMA3, LLAMA, tiny_model
from tests.oracle import random_prompt

TOKENS = 8
WINDOW = GEMMA3["sliding_window"]
MODELS = {"llama": LLAMA, "gemma3": GEMMA3}
# Within the window from end to end; passing it while decoding; past it.
PROMPTS = (9, WINDOW - 2, WINDOW + 8)
FILES: dict[str, list[dict[str, int]]] = {
    "mlx-optiq's": [
        {"layer_idx": 0, "bits": 8, "group_size": 64},
        {"layer_idx": 1, "bits": 4, "group_size": 32},
    ],
    "keys and values apart": [
        {"layer_idx": 0, "k_bits": 8, "v_bits": 4},
        {"layer_idx": 1, "k_bits": 5, "v_bits": 5},
    ],
}
SCHEMES: dict[str, Any] = {
    **{name: name for name in ("affine:8", "affine:3/g32", "affine:8/s16", "affine:4/g32/s16")},
    # Each prompt has one of them: within it, or while decoding.
    **{name: name for name in ("affine:8/start7", "affine:4/start12", "affine:8/s16/start34")},
    "a class of one's own": RotatedScheme,
    **FILES,
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    return tiny_model(MODELS[request.param])


@pytest.fixture(params=SCHEMES)
def kv(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    asked = SCHEMES[request.param]
    if request.param not in FILES:
        return asked
    path = tmp_path / "kv_config.json"
    path.write_text(json.dumps(asked))
    return f"mixed:{path}"


def opened(model: Model, length: int, kv: Any, **options: Any) -> Session:
    asked = {"max_tokens": TOKENS, "prefill_chunk": 16, "logprobs": True, "stop_tokens": (), **options}
    return model.session(random_prompt(model, length), kv=kv, **asked)


def rest_of(session: Session) -> list[Step]:
    return [step for step in session.steps() if step.tokens]


def half_done(model: Model, length: int, kv: Any) -> Session:
    session = opened(model, length, kv)
    session.run(until=lambda step: len(session.tokens) == 5)
    return session


def assert_equal(got: list[Step], want: list[Step]) -> None:
    assert [step.tokens for step in got] == [step.tokens for step in want]
    assert [step.kv_bytes for step in got] == [step.kv_bytes for step in want]
    assert all(mx.array_equal(a.logprobs, b.logprobs) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("length", PROMPTS)
def test_branches_files_and_rewinds_equal_a_whole_run(
    model: Model, kv: Any, length: int, tmp_path: Path
) -> None:
    whole = rest_of(opened(model, length, kv))
    session = half_done(model, length, kv)
    assert_equal(rest_of(session.fork()), whole[5:])
    assert_equal(rest_of(labkit.resume(session.save(tmp_path / "s"), model=model)), whole[5:])
    refused = rewound(session, 3)
    if refused is not None:
        assert "replay=True" in refused
        slides = "sliding" in model.profile.layers and length + 5 > WINDOW
        start = session.plan.kv_setting.start
        assert slides or length + 1 < start <= length + 5
        session.rewind(3, replay=True)
    assert_equal(rest_of(session), whole[2:])


def test_taps_change_no_bit(model: Model, kv: Any) -> None:
    plain = list(opened(model, WINDOW - 2, kv).steps())
    attention = () if kv is RotatedScheme else (0, 1)
    taps = Taps(logits=True, hidden=(0, 1), attention=attention)
    tapped: list[Any] = list(opened(model, WINDOW - 2, kv, taps=taps).steps())
    assert [step.kv_bytes for step in tapped] == [step.kv_bytes for step in plain]
    for step, want in zip(tapped, plain, strict=True):
        assert step.tokens == want.tokens
        assert sorted(step.taps.attention) == list(attention)
        for rows in step.taps.attention.values():
            # f32 sums over at most a window and a chunk of weights.
            assert mx.abs(rows.sum(axis=-1) - 1).max() < 1e-5
        assert want.logprobs is None or mx.array_equal(step.logprobs, want.logprobs)


def test_what_was_quantized_on_the_way_is_not_rewound_but_replayed(tmp_path: Path) -> None:
    """Of 9 tokens in the prompt and 5 drawn, the twelfth position quantized them all."""
    model = tiny_model(LLAMA)
    session = half_done(model, 9, "affine:4/start12")
    with pytest.raises(SessionFailed, match="were quantized at 12 positions, and only 10 would stay"):
        session.rewind(3)
    session.rewind(1)
    assert len(session.tokens) == 4


@pytest.mark.parametrize("start", [0, 7, 12])
def test_a_scheme_that_forgets_to_quantize_is_caught(start: int) -> None:
    model = tiny_model(LLAMA)

    class Forgetful(Affine):
        def settle(self, caches: list[Any]) -> None:
            pass

    model.engine.schemes["affine"] = Forgetful  # type: ignore[index]
    with pytest.raises(SessionFailed, match=r"layer 0 should hold QuantizedKVCache\(bits=8"):
        opened(model, 9, f"affine:8/start{start}").run()


def test_a_scheme_that_quantizes_before_its_start_is_caught() -> None:
    model = tiny_model(LLAMA)

    class Hasty(Affine):
        def settle(self, caches: list[Any]) -> None:
            for layer, cache in enumerate(caches):
                kept = self._setting.layer(layer)
                caches[layer] = self._quantized(cache, kept) if kept else cache

    model.engine.schemes["affine"] = Hasty  # type: ignore[index]
    with pytest.raises(SessionFailed, match="layer 0 should hold KVCache"):
        opened(model, 9, "affine:8/start100").run()


def test_a_short_run_may_end_before_the_start() -> None:
    session = opened(tiny_model(GEMMA3), 9, "affine:8/start100")
    assert session.plan.cache_layout[2] == "QuantizedKVCache(bits=8, group_size=64)"
    assert session.run().finish_reason == "length"


@pytest.mark.parametrize(
    ("dtype", "kv", "most"),
    [(mx.float32, "affine:8", 0.285), (mx.float32, "affine:8/s16", 0.27), (mx.bfloat16, "affine:8", 0.54)],
    ids=["f32", "f32 with scales of 16 bits", "bf16"],
)
def test_bytes_of_the_buffers(dtype: mx.Dtype, kv: str, most: float) -> None:
    """At the same room: 64 elements of 8 bits and two scales, 72 of 256 bytes; 68 of them; 68 of 128."""
    for config in MODELS.values():
        model = tiny_model(config, dtype)
        codes, plain = opened(model, WINDOW + 8, kv), opened(model, WINDOW + 8, "bf16")
        assert codes.run().tokens
        plain.run()
        assert 0 < codes.kv_bytes <= most * plain.kv_bytes
