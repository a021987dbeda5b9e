"""`affine` on full layers against mlx-lm's kv_bits, bit for bit, and what its caches hold."""

from __future__ import annotations

import copy
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import KVCache, QuantizedKVCache

from labkit.core.kv_setting import KVSetting, LayerKV
from labkit.kv.affine import Affine
from labkit.kv.leaves import unpack
from labkit.kv.quantize import quantized
from labkit.kv.quantized import SplitQuantizedKVCache
from labkit.kv.quantized_attention import attend_quantized
from labkit.kv.snapshot import cache_classes, freeze, thaw
from tests.kv_runs import run, run_on
from tests.numerics.tiny_configs import TINY
from tests.numerics.tiny_models import tiny_graph

BITS = (2, 3, 4, 5, 6, 8)
HEAD = 128
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {**TINY["llama"], "head_dim": HEAD},
    "qwen3": {**TINY["qwen3"], "head_dim": HEAD},
}
PROMPT = [(37 * index + 11) % 256 for index in range(50)]
CHUNK, TOKENS = 16, 8
# At once; within the prompt; at the end of a chunk; at the prompt's last token; while decoding; never.
STARTS = (0, 20, 32, 49, 53, 5000)
SPLITS = (LayerKV(8, 4), LayerKV(4, 8, 32), LayerKV(8, 8, short=True), LayerKV(5, 3, 128, short=True))


def uniform(kept: LayerKV, start: int = 0, layers: int = 2) -> Affine:
    return Affine(KVSetting("affine", (kept,) * layers, start))


def assert_equals_mlx_lm(graph: Any, kept: LayerKV, start: int, prompt: list[int] = PROMPT) -> None:
    steps = generate_step(
        mx.array(prompt),
        graph,
        max_tokens=TOKENS,
        prefill_step_size=CHUNK,
        kv_bits=kept.k_bits,
        kv_group_size=kept.group_size,
        quantized_kv_start=start,
    )
    expected = [(int(token), np.array(logprobs.astype(mx.float32))) for token, logprobs in steps]
    found = run(graph, uniform(kept, start), prompt, chunk=CHUNK, tokens=TOKENS)
    assert found.tokens == [token for token, _ in expected]
    assert np.array_equal(found.logprobs, np.stack([logprobs for _, logprobs in expected]))


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16], ids=["f32", "bf16", "f16"])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_width_and_group_equals_mlx_lm(name: str, dtype: mx.Dtype) -> None:
    graph = tiny_graph(CONFIGS[name], dtype)
    for bits in BITS:
        for group in (32, 64, 128):
            assert_equals_mlx_lm(graph, LayerKV(bits, bits, group), 0)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", CONFIGS)
def test_every_start_equals_mlx_lm(name: str, start: int) -> None:
    graph = tiny_graph(CONFIGS[name])
    assert_equals_mlx_lm(graph, LayerKV(4, 4), start)
    assert_equals_mlx_lm(graph, LayerKV(8, 8), start, PROMPT[:1])


def test_short_scales_change_nothing_in_a_model_of_16_bits() -> None:
    graph = tiny_graph(CONFIGS["llama"], mx.bfloat16)
    short, own = (uniform(LayerKV(8, 8, short=short)) for short in (True, False))
    caches = short.make(graph)
    found = run_on(graph, short, caches, PROMPT, chunk=CHUNK, tokens=TOKENS)
    assert found.digest() == run(graph, own, PROMPT, chunk=CHUNK, tokens=TOKENS).digest()
    assert [type(cache) for cache in caches] == [QuantizedKVCache] * 2


@pytest.mark.parametrize("kept", SPLITS, ids=repr)
def test_a_graph_over_split_codes_is_one_over_what_they_stand_for(kept: LayerKV) -> None:
    """No oracle has them, but mlx-lm's own attention over the same numbers is one."""
    graph = tiny_graph(CONFIGS["llama"])

    class Unpacked(KVCache):
        """A plain cache of the numbers that the codes stand for."""

        def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
            inner = self.__dict__.setdefault("inner", SplitQuantizedKVCache(kept))
            k, v = inner.update_and_fetch(keys, values)
            self.offset = inner.offset
            numbers = {"group_size": kept.group_size, "dtype": mx.float32}
            return unpack(k, bits=kept.k_bits, **numbers), unpack(v, bits=kept.v_bits, **numbers)

    tokens = mx.array([PROMPT])
    # The second layer is plain: there a code could flip.
    plain = graph(tokens, cache=[Unpacked(), KVCache()])
    split = graph(tokens, cache=[SplitQuantizedKVCache(kept), KVCache()])
    # f32 sums in another order: 1e-6 of logits of about 1, through two layers.
    assert mx.abs(plain - split).max() < 1e-4
    assert mx.abs(plain - graph(tokens, cache=[KVCache(), KVCache()])).max() > 1e-4


@pytest.mark.parametrize("kept", [LayerKV(8, 8), *SPLITS], ids=repr)
def test_the_same_keys_and_values_give_the_same_bytes(kept: LayerKV) -> None:
    """Filled at once and quantized, one by one, or in chunks: the codes are those of the numbers alone."""
    mx.random.seed(1)
    keys, values = mx.random.normal((1, 2, 300, HEAD)), mx.random.normal((1, 2, 300, HEAD))
    found = []
    for sizes in ([300], [299, 1], [100, 100, 100], [256] + [1] * 44):
        cache: Any = KVCache()
        at = 0
        for size in sizes:
            cache.update_and_fetch(keys[..., at : at + size, :], values[..., at : at + size, :])
            cache, at = quantized(cache, kept), at + size
        leaves = (*cache.keys_and_values()[0], *cache.keys_and_values()[1])
        found.append([np.array(leaf).tobytes() for leaf in leaves])
    assert all(leaves == found[0] for leaves in found)


def assert_holds(cache: Any, others: list[Any]) -> None:
    for other in others:
        assert type(other) is type(cache)
        assert other.offset == cache.offset
        for mine, its in zip((*cache.keys, *cache.values), (*other.keys, *other.values), strict=True):
            assert mine.dtype == its.dtype
            assert mx.array_equal(mine, its)


@pytest.mark.parametrize("kept", SPLITS, ids=repr)
def test_a_split_cache_is_copied_frozen_and_made_of_its_state(kept: LayerKV) -> None:
    cache: Any = SplitQuantizedKVCache(kept)
    mx.random.seed(2)
    cache.update_and_fetch(mx.random.normal((1, 1, 5, HEAD)), mx.random.normal((1, 1, 5, HEAD)))
    arrays: dict[str, Any] = {}
    classes = cache_classes([])
    thawed = thaw(freeze([cache], classes, arrays), classes, arrays)[0]
    made = SplitQuantizedKVCache.from_state(cache.state)
    branch = copy.deepcopy(cache)
    assert_holds(cache, [thawed, made, branch])
    more = mx.random.normal((1, 1, 3, HEAD))
    assert {one.kept for one in (thawed, made, branch)} == {kept}
    expected = thawed.update_and_fetch(more, more)
    for one in (made, branch):
        for mine, its in zip(expected[0], one.update_and_fetch(more, more)[0], strict=True):
            assert mx.array_equal(mine, its)
    # What a branch writes is not the trunk's.
    assert (cache.offset, branch.offset) == (5, 8)
    assert mx.all(cache.keys_and_values()[0][0] == branch.keys_and_values()[0][0][..., :5, :])


def test_trimming_a_split_cache_is_as_if_the_rest_had_never_come() -> None:
    mx.random.seed(3)
    keys = mx.random.normal((1, 1, 9, HEAD))
    trimmed, straight = (SplitQuantizedKVCache(LayerKV(8, 4)) for _ in range(2))
    trimmed.update_and_fetch(keys[..., :7, :], keys[..., :7, :])
    assert trimmed.is_trimmable()
    assert trimmed.trim(3) == 3
    straight.update_and_fetch(keys[..., :4, :], keys[..., :4, :])
    for cache in (trimmed, straight):
        cache.update_and_fetch(keys[..., 7:, :], keys[..., 7:, :])
    assert_holds_positions(trimmed, straight)


def assert_holds_positions(one: Any, other: Any) -> None:
    for mine, its in zip(one.keys_and_values(), other.keys_and_values(), strict=True):
        assert all(mx.array_equal(a, b) for a, b in zip(mine, its, strict=True))


def test_bytes_a_token_of_f32_and_of_16_bits() -> None:
    """Of a room of 256: a group of 64 is 64 bytes of codes and two scales, of 4 bytes or of 2."""
    for dtype, short, share in (
        (mx.float32, False, 72 / 256),
        (mx.float32, True, 68 / 256),
        (mx.bfloat16, False, 68 / 128),
    ):
        plain = KVCache()
        plain.update_and_fetch(*(mx.ones((1, 2, 3, HEAD), dtype) for _ in range(2)))
        codes = quantized(plain, LayerKV(8, 8, short=short))
        assert codes.nbytes == plain.nbytes * share
        codes.update_and_fetch(*(mx.ones((1, 2, 300, HEAD), dtype) for _ in range(2)))
        plain.update_and_fetch(*(mx.ones((1, 2, 300, HEAD), dtype) for _ in range(2)))
        assert codes.nbytes == plain.nbytes * share


MASKS: dict[str, Any] = {
    "none": None,
    "causal": "causal",
    "boolean": mx.arange(3)[:, None] + 4 >= mx.arange(7),
    "per row": (mx.arange(7) >= 2)[None, None, None],
    "added": mx.where(mx.arange(7) < 5, 0.0, -1e9)[None],
    "per head": mx.random.normal((1, 4, 3, 7), key=mx.random.key(5)),
}


@pytest.mark.parametrize("sinks", [None, (0.5, -1.0, 2.0, 0.0)], ids=["no sinks", "sinks"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("mask", MASKS)
def test_attention_over_codes_is_attention_over_what_they_stand_for(
    mask: str, kv_heads: int, sinks: Any
) -> None:
    mx.random.seed(4)
    queries = mx.random.normal((1, 4, 3, HEAD))
    before = np.array(queries)
    cache = SplitQuantizedKVCache(LayerKV(8, 4, 32))
    keys, values = cache.update_and_fetch(*(mx.random.normal((1, kv_heads, 7, HEAD)) for _ in range(2)))
    given = MASKS[mask]
    sink = None if sinks is None else mx.array(sinks)
    bits = {"k_bits": 8, "v_bits": 4, "group_size": 32}
    ours = attend_quantized(queries, keys, values, **bits, scale=0.1, mask=given, sinks=sink)
    plain = (
        unpack(leaves, bits=b, group_size=32, dtype=mx.float32) for leaves, b in ((keys, 8), (values, 4))
    )
    expected = mx.fast.scaled_dot_product_attention(queries, *plain, scale=0.1, mask=given, sinks=sink)
    # f32 sums over 128 products of about 1 in another order.
    assert mx.abs(ours - expected).max() < 1e-5
    assert np.array_equal(np.array(queries), before)
