"""Every GGUF architecture: what mlx-lm computes from an import is what the file means."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from mlx import nn
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.models.switch_layers import SwitchLinear

from labkit.core.events import Event, Note
from labkit.model.gguf.architectures.catalog import ARCHITECTURES
from labkit.model.gguf.importer import import_gguf
from labkit.model.profile import profile_from_config
from tests.numerics.gguf_blocks import KV_HEADS, TinyModel
from tests.numerics.gguf_forward import TRAITS, Forward, Traits
from tests.numerics.gguf_models import MODELS

# Longer than the windows of 8 and the unstretched contexts of 16 and 32.
IDS = [1, 7, 200, 33, 90, 5, 120, 64, 2, 11, 50, 60, 70, 80, *range(91, 260, 7)]
# f32 rounding of logits near 20 after up to 7 layers of sums over up to 160 products; measured: 7e-5.
ATOL = 3e-4
# What a wrong convention must change to be seen: far above the tolerance.
SEEN = 10 * ATOL


def load(
    model: TinyModel, folder: Path, *, quantized: bool = False, keep: bool = False
) -> tuple[Any, dict[str, Any]]:
    """What mlx-lm loads of an import, and its config. quantized: the file; keep: the import too."""
    file = model.write(folder / "tiny.gguf", quantized=quantized)
    target = import_gguf(file, folder / f"out-{keep}", dtype="float32", keep_quantized=keep)
    return mlx_lm.load(str(target))[0], json.loads((target / "config.json").read_text())


def logits(model: Any) -> np.ndarray:
    return np.array(model(mx.array([IDS]), cache=make_prompt_cache(model)))[0]


def meant(model: TinyModel, traits: Traits | None = None) -> np.ndarray:
    return Forward(model, traits or TRAITS[model.architecture]).logits(IDS)


@pytest.mark.parametrize("name", MODELS)
def test_mlx_lm_computes_what_the_file_means(name: str, tmp_path: Path) -> None:
    want = meant(MODELS[name])
    model, config = load(MODELS[name], tmp_path)
    assert np.abs(want).max() > 1
    np.testing.assert_allclose(logits(model), want, rtol=0, atol=ATOL)
    profile = profile_from_config(config, name="tiny")
    context = 64 if name == "gemma2" else 128
    assert (profile.kv_heads, profile.context_length) == (KV_HEADS, context)


def test_every_architecture_is_among_the_tiny_models() -> None:
    assert {m.architecture for m in MODELS.values()} == set(ARCHITECTURES) == set(TRAITS)


@pytest.mark.parametrize("name", MODELS)
def test_a_quantized_import_computes_the_same(name: str, tmp_path: Path) -> None:
    packed, config = load(MODELS[name], tmp_path, quantized=True, keep=True)
    plain, _ = load(MODELS[name], tmp_path, quantized=True)
    assert config["quantization"]["bits"] == 8
    dense = (nn.Linear, nn.Embedding, SwitchLinear)
    left = {n.rsplit(".", 1)[-1] for n, m in packed.named_modules() if isinstance(m, dense)}
    # The one gate that a file holds as a vector.
    assert left == ({"shared_expert_gate"} if name == "qwen2moe" else set())
    # The same weights to the bit; a quantized product adds up in another order than a plain one.
    np.testing.assert_allclose(logits(packed), logits(plain), rtol=0, atol=ATOL)


def test_up_to_a_window_that_mlx_lm_leaves_out_it_changes_nothing(tmp_path: Path) -> None:
    name = "gemma2"
    model, window, events = MODELS[name].stating(attention__sliding_window=8), 8, list[Event]()
    target = import_gguf(
        model.write(tmp_path / "t.gguf"), tmp_path / "o", dtype="float32", sink=events.append
    )
    want = meant(model, replace(TRAITS[name], period=2))
    apart = np.abs(logits(mlx_lm.load(str(target))[0]) - want).max(axis=1)
    assert apart[:window].max() < ATOL
    assert apart[window:].max() > SEEN
    [note] = [event.text for event in events if isinstance(event, Note)]
    assert note.startswith("t.gguf: a context of 8 tokens, not the 128 that the file states")
    for file, key in (
        ("config.json", "max_position_embeddings"),
        ("tokenizer_config.json", "model_max_length"),
    ):
        assert json.loads((target / file).read_text())[key] == window


def test_an_import_that_loses_nothing_says_nothing(tmp_path: Path) -> None:
    events = list[Event]()
    import_gguf(
        MODELS["phi3"].write(tmp_path / "t.gguf"), tmp_path / "o", dtype="float32", sink=events.append
    )
    assert not [event for event in events if isinstance(event, Note)]


def less_one(name: str) -> Callable[[TinyModel], TinyModel]:
    return lambda m: m.holding({name: m.weights[name] - 1})


def swapped(model: TinyModel) -> TinyModel:
    gate, up = np.split(model.weights["blk.0.ffn_up.weight"], 2)
    return model.holding({"blk.0.ffn_up.weight": np.concatenate([up, gate])})


@pytest.mark.parametrize(
    ("name", "traits"),
    [
        *((n, {"interleaved": False}) for n in ("llama", "mixtral", "granite", "smollm3", "command-r")),
        *((n, {"interleaved": True}) for n in ("qwen2", "qwen3", "gemma3", "phi3", "olmo2", "exaone")),
        ("llama untied with biases", {"interleaved": False}),
        ("mixtral", {"renormalize": False}),
        ("qwen2moe", {"renormalize": True}),
        ("qwen3moe", {"renormalize": False}),
        ("smollm3", {"unrotated": 0}),
        ("cohere2", {"unrotated": 0}),
        ("cohere2", {"period": 1}),
        ("gemma", {"embed_scale": 1.0}),
        ("gemma3", {"period": 5}),
        ("gemma3", {"period": 1}),
        ("gemma3", {"local_base": None}),
        ("stablelm", {"layer_norm": False}),
    ],
)
def test_a_wrong_convention_would_be_seen(name: str, traits: dict[str, Any]) -> None:
    model = MODELS[name]
    if traits == {"layer_norm": False}:
        model = model.stating(**{"attention.layer_norm_rms_epsilon": 1e-3})
    other = meant(model, replace(TRAITS[model.architecture], **traits))
    assert np.abs(other - meant(model)).max() > SEEN


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("llama", lambda m: m.stating(rope__freq_base=10000.0)),
        ("llama 3 scaling", lambda m: m.holding({"rope_freqs.weight": None})),
        ("llama other bands", lambda _: MODELS["llama 3 scaling"]),
        ("llama linear", lambda m: m.stating(rope__scaling__factor=5.0)),
        ("qwen2 yarn", lambda m: m.stating(rope__scaling__type="linear")),
        ("qwen2 yarn", lambda m: m.stating(rope__scaling__original_context_length=128)),
        ("gemma", less_one("blk.0.attn_norm.weight")),
        ("gemma2", less_one("blk.1.post_ffw_norm.weight")),
        ("gemma3", less_one("blk.6.attn_q_norm.weight")),
        ("gemma3", less_one("output_norm.weight")),
        ("gemma3", lambda m: m.stating(attention__sliding_window=9)),
        ("gemma3 linear", lambda _: MODELS["gemma3"]),
        ("gemma2", lambda m: m.stating(attn_logit_softcapping=2.2)),
        ("gemma2", lambda m: m.stating(final_logit_softcapping=3.1)),
        ("cohere2", lambda m: m.stating(attention__sliding_window=9)),
        ("command-r", lambda m: m.stating(logit_scale=0.26)),
        ("phi3", swapped),
        ("phi3", lambda m: m.stating(rope__dimension_count=16)),
        ("phi3 longrope", lambda m: m.stating(rope__scaling__attn_factor=1.0)),
        ("stablelm", lambda m: m.stating(rope__dimension_count=8)),
        *(
            ("granite", lambda m, k=k: m.stating(**{k: m.metadata[k] * 1.1}))
            for k in ("logit_scale", "residual_scale", "embedding_scale", "attention.scale")
        ),
    ],
)
def test_a_wrong_number_would_be_seen(name: str, change: Callable[[TinyModel], TinyModel]) -> None:
    assert np.abs(meant(change(MODELS[name])) - meant(MODELS[name])).max() > SEEN
