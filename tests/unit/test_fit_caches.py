"""Growth of caches, step by step and by hand. Imports no mlx."""

from __future__ import annotations

from dataclasses import replace

import pytest

from labkit.core.kv_setting import KVSetting, LayerKV
from labkit.core.spec import CacheShape, Profile
from labkit.model.fit_caches import forwards, held
from tests.unit.test_cost import GEMMA, LLAMA, PLAIN

KEY = 2 * 16 * 2 * 2  # keys and values of 2 heads, 16 wide, 2 bytes: what a token adds to a layer


def rooms(profile: Profile, prompt: int, new: int, chunk: int, setting: KVSetting = PLAIN) -> list[float]:
    fed = forwards(prompt, new, chunk)
    return [caches.room_bytes for caches in held(profile, setting, fed)]


def uniform(bits: int, start: int = 0) -> KVSetting:
    return KVSetting("affine", (LayerKV(bits, bits),), start)


def test_the_last_token_of_a_prompt_is_decoded() -> None:
    assert list(forwards(513, 2, 256)) == [256, 256, 1, 1]
    assert list(forwards(514, 1, 256)) == [256, 256, 1, 1]
    assert list(forwards(1, 3, 256)) == [1, 1, 1]


def test_room_comes_in_steps_of_256() -> None:
    layers = 2 * KEY
    assert rooms(LLAMA, 257, 2, 256) == [256 * layers, 512 * layers, 512 * layers]
    # 100 + 100 + 100: the third chunk does not fit; 200 are kept and a step is added.
    assert rooms(LLAMA, 301, 1, 100) == [256 * layers, 256 * layers, 456 * layers, 456 * layers]


def test_a_cache_that_grows_is_copied_once() -> None:
    """What it held and what is added lie beside the new one; where there was nothing, nothing does."""
    first, second, third = held(LLAMA, PLAIN, iter((256, 1, 1)))
    assert (first.copied_bytes, second.copied_bytes, third.copied_bytes) == (0, 512 * KEY, 0)
    assert (first.attended, second.attended) == (256, 257)


def test_a_rotating_cache_joins_chunks_and_is_cut_by_the_next_token() -> None:
    """A window of 32: 31 older tokens and a chunk, then 32."""
    only = replace(GEMMA, caches=GEMMA.caches[:1])
    row = 2 * 16 * 4
    assert rooms(only, 41, 2, 20) == [20 * row, 40 * row, 32 * row, 32 * row]
    assert rooms(only, 101, 1, 100) == [100 * row, 32 * row]


def test_a_rotating_cache_grows_to_its_window_and_no_further() -> None:
    wide = replace(GEMMA, caches=(replace(GEMMA.caches[0], window=300),))
    row = 2 * 16 * 4
    assert rooms(wide, 1, 2, 256) == [256 * row, 256 * row]
    assert rooms(wide, 11, 2, 256) == [10 * row, 266 * row, 266 * row]
    # The keys that a chunk sees: 299 before it and itself.
    *_, last = held(wide, PLAIN, iter((400, 256)))
    assert last.attended == 299 + 256


def test_quantized_keys_have_a_scale_and_a_bias_a_group() -> None:
    wide = replace(LLAMA, caches=(replace(LLAMA.caches[0], key_size=64, value_size=64),))
    elements = 2 * 128
    assert rooms(wide, 257, 1, 256, uniform(8))[0] == 256 * elements * (1 + 2 * 2 / 64)
    assert rooms(wide, 257, 1, 256, uniform(4))[0] == 256 * elements * (0.5 + 2 * 2 / 64)


def test_keys_are_codes_from_the_start_on() -> None:
    """A chunk that ends before it, one that reaches it: the attention of the next one reads codes."""
    wide = replace(LLAMA, caches=(replace(LLAMA.caches[0], key_size=64, value_size=64),))
    found = list(held(wide, uniform(8, start=300), iter((256, 256, 1))))
    plain, coded = 2 * 128 * 2, 2 * 128 * (1 + 2 * 2 / 64)
    assert [caches.room_bytes for caches in found] == [256 * plain, 512 * coded, 768 * coded]
    assert [caches.coded for caches in found] == [False, False, True]
    assert found[2].copied_bytes == (512 + 256) * coded


@pytest.mark.parametrize("setting", [PLAIN, KVSetting("affine", (LayerKV(8, 8),) * 3)])
def test_a_recurrent_state_does_not_grow(setting: KVSetting) -> None:
    state = replace(LLAMA, caches=(CacheShape("ArraysCache", state_bytes=512),) * 3)
    assert rooms(state, 300, 2, 256, setting) == [1536.0] * 4


def test_a_chunked_cache_drops_what_lies_before_its_window() -> None:
    chunked = replace(LLAMA, caches=(replace(LLAMA.caches[0], name="ChunkedKVCache", window=512),))
    assert max(rooms(chunked, 4001, 300, 256)) == (512 + 256) * KEY
