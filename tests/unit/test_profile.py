"""Profiles from configs: layer kinds as mlx-lm builds its caches, geometry, context length, status."""

from __future__ import annotations

from typing import Any

import pytest

from labkit.core.errors import ModelUnavailable
from labkit.model.family import family_of
from labkit.model.profile import NO_LIMIT, UNSTATED_CONTEXT, profile_from_config

BASE = {
    "model_type": "llama",
    "num_hidden_layers": 6,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}
LETTERS = {"full": "F", "sliding": "S", "recurrent": "R"}


def kinds(**config: Any) -> str:
    profile = profile_from_config({**BASE, **config}, name="m")
    return "".join(LETTERS[kind] for kind in profile.layers)


def test_llama_is_registered_with_its_geometry() -> None:
    profile = profile_from_config(BASE, name="owner/Model-1B-4bit", fingerprint="f")
    assert profile.layers == ("full",) * 6
    assert (profile.heads, profile.kv_heads, profile.head_dim) == (4, 2, 16)
    assert (profile.context_length, profile.vocab_size, profile.hidden_size) == (512, 100, 64)
    assert (profile.status, profile.architecture, profile.dtype) == ("registered", "llama", "bfloat16")
    assert (profile.family, profile.sliding_window) == ("model-1b", None)


def test_a_stated_head_dim_and_the_measured_dtype_win() -> None:
    profile = profile_from_config({**BASE, "head_dim": 128}, name="m", dtype="float32")
    assert (profile.head_dim, profile.dtype) == (128, "float32")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "gemma3_text", "sliding_window": 8}, "SSSSSF"),
        ({"model_type": "gemma3_text", "sliding_window": 8, "sliding_window_pattern": 3}, "SSFSSF"),
        # mlx-lm's gemma3_text reads the pattern and never layer_types
        ({"model_type": "gemma3_text", "layer_types": ["full_attention"] * 6}, "SSSSSF"),
        ({"layer_types": ["sliding_attention", "full_attention"] * 3, "sliding_window": 8}, "SFSFSF"),
        ({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": False}, "FFFFFF"),
        ({"model_type": "qwen3"}, "FFFFFF"),
        ({"model_type": "mistral", "sliding_window": 4096}, "FFFFFF"),
        ({"model_type": "gpt_oss"}, "SFSFSF"),
        ({"model_type": "exaone4", "sliding_window_pattern": "LLG", "sliding_window": 8}, "SSFSSF"),
        ({"model_type": "mamba2"}, "RRRRRR"),
        ({"model_type": "qwen3_next", "full_attention_interval": 3}, "RRFRRF"),
        ({"model_type": "jamba", "attn_layer_period": 3, "attn_layer_offset": 1}, "RFRRFR"),
        ({"model_type": "lfm2", "full_attn_idxs": [2, 5]}, "RRFRRF"),
        ({"model_type": "kimi_linear", "linear_attn_config": {"kda_layers": [1, 2, 4, 5]}}, "RRFRRF"),
        ({"model_type": "granitemoehybrid", "layer_types": ["mamba", "attention"] * 3}, "RFRFRF"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*-E"}, "RRF"),
        (
            {
                "model_type": "recurrent_gemma",
                "block_types": ["recurrent", "recurrent", "attention"],
                "attention_window_size": 8,
            },
            "RRSRRS",
        ),
    ],
)
def test_layer_kinds(config: dict[str, Any], expected: str) -> None:
    assert kinds(**config) == expected


def test_the_window_is_stated_only_where_a_layer_slides() -> None:
    sliding = profile_from_config({**BASE, "model_type": "gemma3_text", "sliding_window": 8}, name="m")
    bare = profile_from_config({**BASE, "model_type": "mistral", "sliding_window": 8}, name="m")
    assert (sliding.sliding_window, sliding.status) == (8, "registered")
    assert (bare.sliding_window, bare.status) == (None, "universal")


def test_a_nested_text_config_is_read_under_the_outer_architecture() -> None:
    text = {"model_type": "gemma3_text", "num_hidden_layers": 12, "hidden_size": 2560, "sliding_window": 1024}
    profile = profile_from_config({"model_type": "gemma3", "text_config": text}, name="m")
    assert profile.architecture == "gemma3"
    assert profile.status == "universal"
    assert profile.layers.count("full") == 2
    # what mlx-lm's gemma3 fills in for the keys that such configs leave out
    assert (profile.heads, profile.kv_heads, profile.head_dim, profile.vocab_size) == (8, 4, 256, 262208)


def test_a_context_length_that_is_not_stated_follows_the_rule() -> None:
    silent = {k: v for k, v in BASE.items() if k != "max_position_embeddings"}
    assert profile_from_config(silent, name="m").context_length == UNSTATED_CONTEXT
    assert profile_from_config({**silent, "model_type": "mamba"}, name="m").context_length == NO_LIMIT
    assert profile_from_config({**silent, "n_positions": 77}, name="m").context_length == 77


@pytest.mark.parametrize("key", ["model_type", "num_hidden_layers", "hidden_size", "vocab_size"])
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(ModelUnavailable, match=key):
        profile_from_config({k: v for k, v in BASE.items() if k != key}, name="m")


def test_an_unknown_layer_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelUnavailable, match=r"quantum(.|\n)*sliding_attention"):
        kinds(layer_types=["quantum"] * 6)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("mlx-community/Qwen3-0.6B-4bit", "qwen3-0.6b"),
        ("Qwen3-0.6B.Q4_K_M", "qwen3-0.6b"),
        ("org/gemma-3-270m-it-bf16", "gemma-3-270m-it"),
        ("model-mlx-8bit", "model"),
        ("4bit", "4bit"),
    ],
)
def test_variants_share_a_family(name: str, family: str) -> None:
    assert family_of(name) == family
