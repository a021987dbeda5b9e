"""The quantized ring is mlx-lm's ring: the same slots, order, masks and trims over codes.

Its oracle as a whole, mlx-optiq, is in test_mixed.py.
"""

from __future__ import annotations

import copy
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.models.cache import RotatingKVCache

from labkit.core.kv_setting import LayerKV
from labkit.kv.base import describe
from labkit.kv.leaves import Leaves, pack, unpack
from labkit.kv.quantize import quantized
from labkit.kv.snapshot import cache_classes, freeze, thaw

WINDOW, HEADS, SIZE = 12, 2, 32
KEPT = (LayerKV(8, 8, 32), LayerKV(3, 3, 32), LayerKV(8, 4, 32), LayerKV(8, 8, 32, short=True))
CHUNKS = st.lists(st.integers(1, 20), min_size=1, max_size=12)


def numbers(count: int, seed: int) -> tuple[mx.array, mx.array]:
    keys, values = mx.random.split(mx.random.key(seed))
    shape = (1, HEADS, count, SIZE)
    return mx.random.normal(shape, key=keys), mx.random.normal(shape, key=values)


def rounded(x: mx.array, bits: int, kept: LayerKV) -> mx.array:
    return plain(pack(x, bits=bits, group_size=kept.group_size, short=kept.short), bits, kept)


def plain(leaves: Leaves, bits: int, kept: LayerKV) -> mx.array:
    return unpack(leaves, bits=bits, group_size=kept.group_size, dtype=mx.float32)


def assert_equal(fetched: Any, expected: Any, kept: LayerKV) -> None:
    """The numbers that leaves of keys and of values stand for are these arrays."""
    for leaves, want, bits in zip(fetched, expected, (kept.k_bits, kept.v_bits), strict=True):
        assert mx.array_equal(plain(leaves, bits, kept), want)


def place(cache: Any) -> tuple[Any, ...]:
    return cache.offset, cache._idx, cache.keep, cache.max_size, cache.size(), cache.is_trimmable()


def masks(cache: Any) -> list[Any]:
    """Of one token and of several, with a window of its own and with a smaller one."""
    made = [cache.make_mask(n, window_size=w) for n in (1, 5) for w in (None, WINDOW, 7)]
    return [mask.tolist() if isinstance(mask, mx.array) else mask for mask in made]


def filled(kept: LayerKV, chunks: list[int], keep: int = 0) -> tuple[Any, RotatingKVCache]:
    """A ring of codes, quantized after its first chunk, and mlx-lm's of the numbers that they stand for."""
    ring: Any = RotatingKVCache(WINDOW, keep)
    twin = RotatingKVCache(WINDOW, keep)
    for index, count in enumerate(chunks):
        keys, values = numbers(count, index)
        fetched = ring.update_and_fetch(keys, values)
        expected = twin.update_and_fetch(rounded(keys, kept.k_bits, kept), rounded(values, kept.v_bits, kept))
        if index:
            assert_equal(fetched, expected, kept)
        ring = quantized(ring, kept)
        assert_equal(ring.keys_and_values(), twin.keys_and_values(), kept)
        assert place(ring) == place(twin)
        assert masks(ring) == masks(twin)
    return ring, twin


@given(st.sampled_from(KEPT), CHUNKS, st.sampled_from([0, 4]))
def test_it_turns_as_mlx_lms_ring_does(kept: LayerKV, chunks: list[int], keep: int) -> None:
    filled(kept, chunks, keep)


def test_a_ring_that_grows_while_decoding_turns_the_same_way() -> None:
    """Past the step of 256 in which mlx-lm makes room."""
    ring: Any = RotatingKVCache(300)
    twin = RotatingKVCache(300)
    kept = KEPT[2]
    for index in range(310):
        keys, values = numbers(1, index)
        ring.update_and_fetch(keys, values)
        twin.update_and_fetch(rounded(keys, 8, kept), rounded(values, 4, kept))
        ring = quantized(ring, kept)
        assert place(ring) == place(twin)
        if index in (0, 255, 256, 299, 300, 309):
            assert_equal(ring.keys_and_values(), twin.keys_and_values(), kept)


@given(st.sampled_from(KEPT), st.integers(2, WINDOW - 1), st.integers(1, 4), CHUNKS)
def test_it_is_trimmed_as_mlx_lms_ring_is(kept: LayerKV, length: int, count: int, chunks: list[int]) -> None:
    ring, twin = filled(kept, [1, length - 1])
    assert ring.trim(count) == twin.trim(count)
    for index, chunk in enumerate(chunks):
        keys, values = numbers(chunk, 100 + index)
        fetched = ring.update_and_fetch(keys, values)
        assert_equal(
            fetched,
            twin.update_and_fetch(rounded(keys, kept.k_bits, kept), rounded(values, kept.v_bits, kept)),
            kept,
        )
        assert place(ring) == place(twin)


@pytest.mark.parametrize("chunks", [[3], [30], [5, 1, 1], [11, 1, 1, 1]], ids=repr)
@pytest.mark.parametrize("kept", KEPT, ids=repr)
def test_copies_go_on_as_the_ring_does(kept: LayerKV, chunks: list[int]) -> None:
    ring, _ = filled(kept, chunks, keep=4)
    arrays: dict[str, Any] = {}
    classes = cache_classes([])
    frozen = freeze([ring], classes, arrays)
    copies = [thaw(frozen, classes, arrays)[0], copy.deepcopy(ring), type(ring).from_state(ring.state)]
    assert {describe(one) for one in copies} == {describe(ring)}
    before = ring.nbytes
    for index in range(3):
        for one in copies:
            keys, values = one.update_and_fetch(*numbers(1 + index, 7 + index))
            assert place(one) == place(copies[0])
            assert_equal(
                (keys, values),
                tuple(
                    plain(leaves, bits, kept)
                    for leaves, bits in zip(
                        copies[0].keys_and_values(), (kept.k_bits, kept.v_bits), strict=True
                    )
                ),
                kept,
            )
    assert ring.nbytes == before
    assert place(ring) == place(filled(kept, chunks, keep=4)[0])


@pytest.mark.parametrize(
    ("kept", "dtype", "layout"),
    [
        (LayerKV(8, 8), mx.float32, "RotatingQuantizedKVCache(bits=8, group_size=64)"),
        (LayerKV(8, 8, short=True), mx.bfloat16, "RotatingQuantizedKVCache(bits=8, group_size=64)"),
        (
            LayerKV(8, 8, short=True),
            mx.float32,
            "RotatingSplitQuantizedKVCache(k_bits=8, v_bits=8, group_size=64, scales=16)",
        ),
        (LayerKV(8, 4, 32), mx.float16, "RotatingSplitQuantizedKVCache(k_bits=8, v_bits=4, group_size=32)"),
    ],
)
def test_it_says_what_it_is(kept: LayerKV, dtype: mx.Dtype, layout: str) -> None:
    ring = RotatingKVCache(WINDOW)
    ring.update_and_fetch(*(mx.ones((1, 1, 3, 64), dtype) for _ in range(2)))
    made = quantized(ring, kept)
    assert describe(made) == layout
    assert made.to_quantized() is made
