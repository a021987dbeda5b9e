"""Profiles as data: what they say of their layers and caches, and which models are one family."""

from __future__ import annotations

from dataclasses import replace

import pytest

from labkit.core.spec import CacheShape, LayerKind, Profile
from labkit.model.family import family_of
from labkit.model.layers import layer_kind

FULL = CacheShape("KVCache", kv_heads=2, key_size=64, value_size=64, item_bytes=4)
SLIDING = replace(FULL, name="RotatingKVCache", window=32)
CHUNKED = replace(FULL, name="ChunkedKVCache", window=32)
STATE = CacheShape("ArraysCache", state_bytes=512)
LATENT = CacheShape("KVCache", kv_heads=1, key_size=512, value_size=64, item_bytes=2)
PROFILE = Profile(
    name="org/tiny",
    family="tiny",
    architecture="made_up",
    layers=("sliding", "full"),
    context_length=512,
    vocab_size=100,
    hidden_size=64,
    heads=4,
    kv_heads=2,
    head_dim=64,
    dtype="float32",
    fingerprint="0123456789abcdef",
    sliding_window=32,
    caches=(SLIDING, FULL),
    depth=3,
)


def listed(*parts: CacheShape) -> CacheShape:
    return CacheShape("CacheList", parts=parts)


@pytest.mark.parametrize(
    ("cache", "kind"),
    [
        (FULL, "full"),
        (LATENT, "full"),
        (SLIDING, "sliding"),
        (CHUNKED, "sliding"),
        (STATE, "recurrent"),
        (listed(FULL, FULL), "full"),
        (listed(FULL, SLIDING), "sliding"),
        (listed(STATE, FULL), "recurrent"),
        # What labkit does not know gives nothing back.
        (CacheShape("LayerCache", token_bytes=8.0), "recurrent"),
    ],
)
def test_a_layer_is_what_its_cache_can_give_back(cache: CacheShape, kind: LayerKind) -> None:
    assert layer_kind(cache) == kind


def test_a_list_of_caches_has_leaves_and_any_other_is_its_own() -> None:
    assert FULL.leaves() == (FULL,)
    assert listed(STATE, listed(FULL, SLIDING)).leaves() == (STATE, FULL, SLIDING)
    assert (FULL.elements, LATENT.elements, STATE.elements) == (256, 576, 0)


def test_the_own_layout_is_what_the_model_makes_where_that_is_known() -> None:
    assert PROFILE.own_layout() == ("RotatingKVCache", "KVCache")
    assert replace(PROFILE, caches=()).own_layout() == (None, None)


def test_head_sizes_are_those_of_every_key_and_value() -> None:
    assert PROFILE.head_sizes() == (64,)
    assert replace(PROFILE, caches=(LATENT, listed(STATE, FULL))).head_sizes() == (64, 512)
    assert replace(PROFILE, caches=()).head_sizes() == (64,)
    assert replace(PROFILE, caches=(STATE,), head_dim=None).head_sizes() == ()


def test_explain_is_golden() -> None:
    mixed = replace(PROFILE, caches=(SLIDING, LATENT), moe=(1, 2), experts=8, experts_per_token=2)
    assert mixed.explain() == (
        "model       org/tiny (universal, family tiny)\n"
        "graph       made_up, hidden 64, vocabulary 100\n"
        "layers      1 sliding, 1 full (window 32)\n"
        "experts     2 of 8 a token, in 2 of 3 layers\n"
        "kv          2 heads of 64, 1 heads of 512 and 64\n"
        "context     512 tokens\n"
        "dtype       float32\n"
        "oracle      mlx-lm\n"
        "fingerprint 0123456789abcdef"
    )


def test_explain_names_no_experts_and_no_heads_where_there_are_none() -> None:
    text = replace(PROFILE, layers=("recurrent",), caches=(STATE,), kv_heads=None, head_dim=None).explain()
    assert "experts" not in text
    assert "kv          none" in text


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
