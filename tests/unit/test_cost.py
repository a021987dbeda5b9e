"""Costs by hand for a llama-like and a gemma3-like model. Imports no mlx."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from labkit.core.kv_setting import KVSetting, LayerKV
from labkit.core.spec import CacheShape, Profile
from labkit.model.ceilings import Ceilings
from labkit.model.cost import (
    Weights,
    decode_flops_per_token,
    kv_bytes_at,
    kv_bytes_per_token,
    prefill_flops_per_token,
    roofline,
    untied_embedding,
)
from labkit.model.tensors import Tensor

ROW = CacheShape("KVCache", kv_heads=2, key_size=16, value_size=16, item_bytes=2)
LLAMA = Profile(
    name="llama-like",
    family="llama-like",
    architecture="llama",
    layers=("full", "full"),
    context_length=2048,
    vocab_size=1000,
    hidden_size=64,
    heads=4,
    kv_heads=2,
    head_dim=16,
    dtype="bfloat16",
    fingerprint="f" * 16,
    caches=(ROW, ROW),
)
# As Gemma 3: 5 sliding layers to a full one.
ONE_HEAD = replace(ROW, kv_heads=1, item_bytes=4)
SLIDING = replace(ONE_HEAD, name="RotatingKVCache", window=32)
GEMMA = replace(
    LLAMA,
    architecture="gemma3_text",
    layers=("sliding",) * 5 + ("full",),
    sliding_window=32,
    kv_heads=1,
    dtype="float32",
    caches=(SLIDING,) * 5 + (ONE_HEAD,),
)
STATE = CacheShape("ArraysCache", state_bytes=512)
TABLE = 1000 * 64
BODY = 60_000
# The body, and one table that is embedding and output; or two tables.
TIED = Weights(2 * (BODY + TABLE), BODY + TABLE)
UNTIED = Weights(2 * (BODY + 2 * TABLE), BODY + 2 * TABLE, 2 * TABLE, TABLE)
PLAIN = KVSetting("bf16")
CEILINGS = Ceilings(flops_per_s=1e9, bytes_per_s=1e6, dtype="bfloat16")


def affine(bits: int, start: int = 0) -> KVSetting:
    return KVSetting("affine", (LayerKV(bits, bits),) * 2, start)


def tensor(name: str, *shape: int) -> Tensor:
    return Tensor(name, "BF16", shape, Path(), 0, 0)


def test_kv_bytes_of_a_llama() -> None:
    """Keys and values x 2 layers x 2 heads x 16 wide."""
    elements = 2 * 2 * 2 * 16
    assert kv_bytes_per_token(LLAMA, PLAIN) == elements * 2
    assert kv_bytes_at(LLAMA, 100, PLAIN) == 100 * elements * 2
    # A group of 64 shares a scale and a bias of 2 bytes each.
    assert kv_bytes_per_token(LLAMA, affine(8)) == elements * (1 + 4 / 64)
    assert kv_bytes_per_token(LLAMA, affine(4)) == elements * (0.5 + 4 / 64)


def test_kv_bytes_of_sliding_layers_stop_at_the_window() -> None:
    """Keys and values x 1 head x 16 wide x 4 bytes."""
    row = 2 * 16 * 4
    assert kv_bytes_per_token(GEMMA, PLAIN) == 6 * row
    assert kv_bytes_at(GEMMA, 20, PLAIN) == 6 * 20 * row
    assert kv_bytes_at(GEMMA, 100, PLAIN) == (5 * 32 + 100) * row


def test_kv_bytes_of_recurrent_layers_do_not_grow() -> None:
    hybrid = replace(LLAMA, layers=("recurrent", "recurrent", "full"), caches=(STATE, STATE, ROW))
    assert kv_bytes_per_token(hybrid, PLAIN) == kv_bytes_per_token(LLAMA, PLAIN) / 2
    assert kv_bytes_at(hybrid, 100, PLAIN) == 2 * 512 + 100 * ROW.elements * 2
    only = replace(LLAMA, layers=("recurrent",), caches=(STATE,), kv_heads=None, head_dim=None)
    assert (kv_bytes_per_token(only, PLAIN), kv_bytes_at(only, 9, PLAIN)) == (0, 512)


def test_kv_bytes_of_latents_and_lists_are_those_of_what_they_hold() -> None:
    """A latent of 512 and a rotary part of 64; an index of 128 beside it, which no scheme quantizes."""
    latent = CacheShape("KVCache", kv_heads=1, key_size=512, value_size=64, item_bytes=2)
    index = CacheShape("KVCache", kv_heads=1, key_size=128, value_size=0, item_bytes=2)
    both = CacheShape("CacheList", parts=(latent, index))
    assert kv_bytes_per_token(replace(LLAMA, caches=(latent,)), PLAIN) == 576 * 2
    assert kv_bytes_per_token(replace(LLAMA, caches=(latent,)), affine(8)) == 576 * (1 + 4 / 64)
    assert kv_bytes_at(replace(LLAMA, caches=(both,)), 10, PLAIN) == 10 * (576 + 128) * 2


def test_kv_bytes_of_an_unknown_cache_are_what_was_measured() -> None:
    """A window that is full, and a quarter of a row of 256 bytes a token."""
    other = CacheShape("LayerCache", state_bytes=8192, token_bytes=64.0)
    assert kv_bytes_at(replace(LLAMA, caches=(other,)), 100, PLAIN) == 8192 + 100 * 64


def test_a_model_without_caches_reads_none() -> None:
    bare = replace(LLAMA, caches=())
    assert kv_bytes_at(bare, 100, PLAIN) == 0
    assert prefill_flops_per_token(bare, TIED, 101) == 2 * BODY


@pytest.mark.parametrize("weights", [TIED, UNTIED], ids=["tied", "untied"])
def test_a_decoded_token_multiplies_with_the_body_and_one_table(weights: Weights) -> None:
    attention = 2 * 4 * (4 * 16) * 100
    assert decode_flops_per_token(LLAMA, weights, 100) == 2 * (BODY + TABLE) + attention


@pytest.mark.parametrize("weights", [TIED, UNTIED], ids=["tied", "untied"])
def test_a_prompt_token_multiplies_with_no_table_and_of_the_last_layer_with_keys_and_values(
    weights: Weights,
) -> None:
    keys_and_values = 2 * (2 * 16) * 64
    # 100 prompt tokens are prefilled; the p-th attends to p, 50.5 on average.
    attention = 4 * (4 * 16) * 50.5
    expected = 2 * (BODY / 2 + keys_and_values) + attention
    assert prefill_flops_per_token(LLAMA, weights, 101) == expected


def test_sliding_layers_attend_to_no_more_than_the_window() -> None:
    head = 4 * (4 * 16)
    assert decode_flops_per_token(GEMMA, TIED, 100) == 2 * (BODY + TABLE) + head * (5 * 32 + 100)
    # Of 100 tokens the first 32 attend to 1..32 and the other 68 to 32; the full layer is the last one.
    attended = (sum(range(1, 33)) + 68 * 32) / 100
    keys_and_values = 2 * 16 * 64
    expected = 2 * (BODY * 5 / 6 + keys_and_values) + head * 5 * attended
    assert prefill_flops_per_token(GEMMA, TIED, 101) == pytest.approx(expected)


def test_a_window_larger_than_the_prompt_changes_nothing() -> None:
    wide = replace(GEMMA, caches=(replace(SLIDING, window=4096),) * 5 + (ONE_HEAD,))
    full = replace(GEMMA, caches=(ONE_HEAD,) * 6)
    assert prefill_flops_per_token(wide, TIED, 101) == prefill_flops_per_token(full, TIED, 101)
    assert decode_flops_per_token(wide, TIED, 100) == decode_flops_per_token(full, TIED, 100)


@pytest.mark.parametrize("weights", [TIED, UNTIED], ids=["tied", "untied"])
def test_the_card_divides_the_ceilings(weights: Weights) -> None:
    """Halfway through 21 new tokens after 90: 100 cached."""
    card = roofline(LLAMA, weights, PLAIN, 90, 21, CEILINGS)
    read, held = 2 * (BODY + TABLE), 100 * 2 * 2 * 2 * 16 * 2
    assert (card.weight_bytes, card.kv_bytes) == (read, held)
    assert card.decode_tps_limit == pytest.approx(1e6 / (read + held))
    assert card.prefill_tps_limit == pytest.approx(1e9 / prefill_flops_per_token(LLAMA, weights, 90))
    assert card.decode_flops_per_token == decode_flops_per_token(LLAMA, weights, 100)


def test_the_card_is_three_lines() -> None:
    """25e9 / (248,000 + 100 x 136) and 2e11 / (2 x 34,096 + 256 x 45)."""
    text = roofline(LLAMA, TIED, affine(8), 90, 21, Ceilings(2e11, 25e9, "float32")).card()
    assert text == (
        "reads 0.000 GB of weights and 0.1 KiB of KV per cached token; "
        "0.00 GFLOP a decoded token, 0.00 a prompt token\n"
        "measured ceilings: 25.0 GB/s, 200 GFLOP/s (float32)\n"
        "so at most: decode 95566 tok/s, prefill 2509033 tok/s"
    )


def test_a_prompt_of_one_token_has_no_prefill_and_still_a_card() -> None:
    assert roofline(LLAMA, TIED, PLAIN, 1, 1, CEILINGS).prefill_tps_limit > 0


def test_an_embedding_is_looked_up_only_where_the_output_has_a_matrix_of_its_own() -> None:
    packed = [tensor(f"model.embed_tokens.{leaf}", 1000, 8) for leaf in ("weight", "scales", "biases")]
    # A projection may happen to have a row per token.
    others = [tensor("model.layers.0.mlp.up_proj.weight", 1000, 64), tensor("model.norm.weight", 64)]
    tied = {t.name: t for t in [*packed, *others]}
    assert untied_embedding(tied, 1000) == {}
    untied = {**tied, "lm_head.weight": tensor("lm_head.weight", 1000, 64)}
    assert set(untied_embedding(untied, 1000)) == {t.name for t in packed}
