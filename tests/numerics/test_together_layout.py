"""How rows that decode together lie in memory: what stacks, masks, bytes, and what a row is taken out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache

from labkit.kv.base import describe, kv_bytes
from labkit.kv.form import holding
from labkit.kv.padded import Padded
from labkit.kv.stacked import stack
from labkit.kv.together import Together
from tests.numerics.tiny_configs import TINY
from tests.numerics.tiny_models import GEMMA3, LLAMA, tiny_graph
from tests.numerics.together_rows import Beside, codes, filled, plain


def together(graph: Any, *rows: tuple[int, Any]) -> Together:
    beside = Beside(graph)
    beside.add(*rows)
    return beside.together


def test_rows_at_one_position_are_a_cache_of_their_own_class_without_a_mask() -> None:
    found = together(tiny_graph(GEMMA3), (40, plain), (40, plain), (40, plain))
    kinds = {type(cache) for cache in found.caches}
    assert kinds == {KVCache, RotatingKVCache}
    assert all(cache.offset == 40 for cache in found.caches)
    token = mx.zeros((3, 1))
    assert all(create_attention_mask(token, cache) is None for cache in found.caches)
    # The window that the model passes is that of the ring.
    assert create_attention_mask(token, found.caches[0], window_size=32) is None


def test_full_rings_need_no_mask_at_any_positions() -> None:
    found = together(tiny_graph(GEMMA3), (40, plain), (33, plain), (71, plain))
    assert type(found.caches[0]) is Padded
    assert found.caches[0].make_mask(1, window_size=32) is None
    assert found.caches[2].make_mask(1) is not None


def test_layers_of_a_kind_go_by_rows_where_padding_would_outweigh_the_rows() -> None:
    # Windows of 32 are full in all rows; 200 slots for each of three rows are over twice 200 + 40 + 40.
    found = together(tiny_graph(GEMMA3), (200, plain), (40, plain), (40, plain))
    full = [index for index in range(7) if index % 3 == 2]
    kinds = [type(cache).__name__ for cache in found.caches]
    assert kinds == ["ByRows" if index in full else "Padded" for index in range(7)]
    found.keep([1, 2])
    assert {type(cache) for cache in found.caches} == {KVCache, RotatingKVCache}


def test_padding_goes_with_the_longest_row() -> None:
    graph = tiny_graph(LLAMA)
    found = together(graph, (300, plain), (299, plain), (281, plain))
    assert found.bytes_by_row()[0] == kv_bytes(filled(graph, plain(graph), 300))
    found.keep([2, 1])
    graph(mx.array([[1], [2]]), cache=found.caches)
    assert found.caches[0].keys_and_values()[0].shape[2] == 300
    found.keep([0])
    assert type(found.caches[0]) is KVCache
    assert found.caches[0].offset == 282
    short = together(graph, (300, plain), (200, plain), (200, plain))
    short.keep([1, 2])
    assert short.caches[0].keys.shape == (2, 1, 256, 64)


@pytest.mark.parametrize("lengths", [(40, 40), (40, 29), (300, 9)], ids=["level", "padded", "by rows"])
@pytest.mark.parametrize("make", [plain, codes(8), codes(8, 4)], ids=["plain", "codes", "split codes"])
def test_a_row_taken_out_is_the_row_alone(make: Any, lengths: tuple[int, int]) -> None:
    beside = Beside(tiny_graph(GEMMA3, mx.bfloat16))
    beside.add(*((length, make) for length in lengths))
    beside.step(5)
    for index, row in enumerate(beside.rows):
        taken = beside.together.take(index)
        assert beside.together.names(index) == tuple(describe(cache) for cache in row.caches)
        for mine, its in zip(taken, row.caches, strict=True):
            assert type(mine) is type(its)
            own = vars(its).keys() - {"keys", "values"}
            assert {name: vars(mine)[name] for name in own} == {name: vars(its)[name] for name in own}
            assert mine.nbytes == its.nbytes
        assert beside.together.bytes_by_row()[index] >= kv_bytes(row.caches)


def test_a_row_taken_out_shares_nothing_with_the_others() -> None:
    beside = Beside(tiny_graph(LLAMA, mx.bfloat16))
    for lengths in ((20, 20), (14,), (60, 1)):
        beside.add(*((length, plain) for length in lengths))
        taken = beside.together.take(0)
        for cache in taken:
            cache.keys[..., :5, :] = 7.0
        beside.step(2)
    assert max(beside.gaps()) == 0.0


def test_a_row_taken_out_does_not_hold_the_others_in_memory() -> None:
    graph = tiny_graph(LLAMA)
    held = together(graph, *[(250, plain)] * 8)
    mx.eval([(cache.keys, cache.values) for cache in held.caches])
    before, row = mx.get_active_memory(), held.bytes_by_row()[0]
    taken = held.take(2)
    mx.eval([(cache.keys, cache.values) for cache in taken])
    del held
    assert before - mx.get_active_memory() > 6 * row


def test_what_left_is_freed() -> None:
    graph = tiny_graph(LLAMA)
    held = together(graph, *[(250, plain)] * 8)
    mx.eval([(cache.keys, cache.values) for cache in held.caches])
    before, freed = mx.get_active_memory(), held.bytes_by_row()[0]
    held.keep([3])
    mx.eval(graph(mx.array([[1]]), cache=held.caches), [(c.keys, c.values) for c in held.caches])
    # Seven rows of eight; a row's logits and the like are less than a row.
    assert before - mx.get_active_memory() > 6 * freed


@pytest.mark.parametrize("window", [None, 4, 9, 16, 40])
@pytest.mark.parametrize("steps", [0, 3, 20])
@pytest.mark.parametrize("keep", [0, 2])
def test_a_mask_is_that_of_each_row_alone(window: int | None, steps: int, keep: int) -> None:
    for empty in (KVCache(), RotatingKVCache(max_size=16, keep=keep)):
        rows = [holding(empty, (None, None), 0, 0) for _ in range(3)]
        for row, length in zip(rows, (3, 12, 25), strict=True):
            for _ in range(length):
                row.update_and_fetch(mx.zeros((1, 1, 1, 8)), mx.zeros((1, 1, 1, 8)))
        padded = stack(rows)
        for _ in range(steps):
            for cache, count in ((padded, 3), *((row, 1) for row in rows)):
                cache.update_and_fetch(mx.zeros((count, 1, 1, 8)), mx.zeros((count, 1, 1, 8)))
        mask = padded.make_mask(1, window_size=window)
        assert type(rows[0]) is KVCache or padded.keys.shape[2] <= 16
        sizes = [min(row.offset + 1, 16 if type(row) is RotatingKVCache else 99) for row in rows]
        shown = mx.ones((3, 1, 1, max(sizes)), mx.bool_) if mask is None else mask
        for row, size, seen in zip(rows, sizes, shown, strict=True):
            own: Any = create_attention_mask(mx.zeros((1, 1)), row, window_size=window)
            expected = [True] * size if own is None else own.reshape(-1).tolist()
            assert seen.reshape(-1).tolist() == expected + [False] * (max(sizes) - size)


def _operations(graph: Any, caches: Sequence[Any], rows: int, folder: Path) -> int:
    """Operations that a decode step issues, the third, so that nothing of a join is among them."""
    for _ in range(2):
        logits = graph(mx.array([[5]] * rows), cache=caches)
        mx.eval(logits, [(cache.keys, cache.values, cache.offset) for cache in caches])
    drawn = folder / "graph.dot"
    mx.export_to_dot(str(drawn), graph(mx.array([[5]] * rows), cache=caches))
    return len(re.findall(r"label ?= ?\"\w+\"", drawn.read_text()))


@pytest.mark.parametrize("lengths", [(40,) * 4, (40, 30, 50, 60)], ids=["level", "padded"])
@pytest.mark.parametrize("config", [LLAMA, TINY["qwen3"], GEMMA3], ids=["llama", "qwen3", "gemma3"])
def test_a_step_issues_fewer_operations_than_mlx_lms(
    config: dict[str, Any], lengths: tuple[int, ...], tmp_path: Path
) -> None:
    graph = tiny_graph(config)
    rows = [filled(graph, plain(graph), length) for length in lengths]
    merged = [column[0].merge(list(column)) for column in zip(*rows, strict=True)]
    ours = together(graph, *((length, plain) for length in lengths)).caches
    assert len(make_prompt_cache(graph)) == len(ours)
    assert _operations(graph, ours, 4, tmp_path) < _operations(graph, merged, 4, tmp_path)
