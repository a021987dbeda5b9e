"""Rows with caches of their own: any class, any scheme, and a row in which one raises ends alone."""

from __future__ import annotations

from typing import Any, ClassVar

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache

from labkit.core.errors import SessionFailed
from labkit.core.kv_setting import KVSetting
from labkit.kv.base import Scheme
from labkit.kv.plain import Plain
from labkit.kv.together import Together, why_not_together
from labkit.model.attention import CacheSpec
from tests.numerics.rotated_scheme import RotatedScheme
from tests.numerics.tiny_configs import TINY
from tests.numerics.tiny_models import GEMMA3, LLAMA, tiny_graph
from tests.numerics.together_rows import ENVELOPE, Beside, codes, exact, plain


class Halves(KVCache):
    """Attends itself, to the newer half of what it holds."""

    SPEC: ClassVar[CacheSpec] = CacheSpec(attend=True)

    def attend(self, queries: mx.array, keys: mx.array, values: mx.array, **how: Any) -> mx.array:
        half = keys.shape[2] // 2
        return mx.fast.scaled_dot_product_attention(
            queries, keys[:, :, half:], values[:, :, half:], scale=how["scale"], mask=how["mask"]
        )


class Evicting(Plain):
    """mlx-lm's own cache, of which a settle drops the oldest; it does not say when it is done with one."""

    def __init__(self, setting: KVSetting) -> None:
        pass

    def settle(self, caches: list[Any]) -> None:
        for cache in [cache for cache in caches if type(cache) is KVCache]:
            if cache.keys is not None and cache.values is not None and cache.offset > 30:
                cache.keys, cache.values = cache.keys[:, :, 1:30], cache.values[:, :, 1:30]
                cache.offset = 29


class Raising(KVCache):
    """Raises at a position, in what `where` names."""

    where: ClassVar[str] = "update_and_fetch"
    at: ClassVar[int] = 25

    def _raise_at(self, where: str) -> None:
        if self.where == where and self.offset >= self.at:
            raise ArithmeticError(f"{where} at {self.offset}")

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
        self._raise_at("update_and_fetch")
        return super().update_and_fetch(keys, values)

    def make_mask(self, *args: Any, **kwargs: Any) -> Any:
        self._raise_at("make_mask")
        return super().make_mask(*args, **kwargs)


class AttendRaising(Raising):
    SPEC: ClassVar[CacheSpec] = CacheSpec(attend=True)

    def attend(self, queries: mx.array, keys: mx.array, values: mx.array, **how: Any) -> mx.array:
        self._raise_at("attend")
        output = mx.fast.scaled_dot_product_attention(queries, keys, values, **how)
        return output[..., :1] if self.where == "shape" and self.offset >= self.at else output


class Own(Plain):
    """Another class in place of mlx-lm's on full layers."""

    kind: ClassVar[type[KVCache]] = Halves

    def make(self, graph: Any) -> list[Any]:
        return [self.kind() if type(cache) is KVCache else cache for cache in make_prompt_cache(graph)]


def of(kind: type[KVCache]) -> Any:
    made = type("OwnOf" + kind.__name__, (Own,), {"kind": kind})
    return lambda graph: made(KVSetting("own"))


def rotated(graph: Any) -> Scheme:
    return RotatedScheme(KVSetting("rotated"))


def evicting(graph: Any) -> Scheme:
    return Evicting(KVSetting("evicting"))


def assert_alike(beside: Beside) -> None:
    assert max(beside.gaps()) <= (0.0 if exact(mx.float32) else ENVELOPE)


CONFIGS = {"llama": LLAMA, "qwen3": TINY["qwen3"], "gemma3": GEMMA3, "qwen3_5": TINY["qwen3_5"]}
MAKES = {"halves": of(Halves), "rotated": rotated, "evicting": evicting}


@pytest.mark.parametrize(
    ("name", "scheme"),
    # The rotated scheme holds no recurrent layers.
    [(name, scheme) for name in CONFIGS for scheme in MAKES if (name, scheme) != ("qwen3_5", "rotated")],
)
def test_any_class_and_any_settle(name: str, scheme: str) -> None:
    beside, make = Beside(tiny_graph(CONFIGS[name])), MAKES[scheme]
    beside.add((21, make), (28, make), (5, make))
    assert "ByRows" in beside.layouts()
    beside.step(6)
    beside.add((28, plain), (40, plain))
    beside.step(4)
    taken = beside.take(1)
    beside.keep([4, 1, 0])
    beside.step(4)
    assert not beside.together.failures()
    assert taken <= (0.0 if exact(mx.float32) else ENVELOPE)
    assert_alike(beside)


@pytest.mark.parametrize("lengths", [(30, 30, 30), (26, 31, 40)], ids=["level", "ragged"])
def test_rows_stack_once_their_scheme_is_done_with_them(lengths: tuple[int, ...]) -> None:
    beside = Beside(tiny_graph(LLAMA))
    beside.add(*((length, codes(8, start=33)) for length in lengths))
    seen = []
    for _ in range(8):
        beside.step()
        seen.append(beside.layouts()[0])
    assert seen == ["ByRows"] * (32 - min(lengths)) + [seen[-1]] * (8 - 32 + min(lengths))
    assert seen[-1] in ("QuantizedKVCache", "PaddedCodes")
    assert_alike(beside)


@pytest.mark.parametrize("where", ["update_and_fetch", "make_mask", "attend", "shape"])
def test_a_row_in_which_a_cache_raises_ends_alone(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = AttendRaising if where in ("attend", "shape") else Raising
    monkeypatch.setattr(Raising, "where", where)
    monkeypatch.setattr(Raising, "at", 1000)
    beside = Beside(tiny_graph(GEMMA3))
    beside.add((20, plain), (23, of(kind)), (20, codes(8)))
    beside.step(2)
    assert not beside.together.failures()
    monkeypatch.setattr(Raising, "at", 25)
    # Alone it would raise too: only the others are compared from here on.
    alone = beside.rows.pop(1)
    tokens = mx.array([[1], [2], [3]])
    logits = beside.graph(tokens, cache=beside.together.caches)[:, -1]
    assert bool(mx.isfinite(logits).all())
    failures = beside.together.failures()
    assert list(failures) == [1]
    assert isinstance(failures[1], SessionFailed if where == "shape" else ArithmeticError)
    for row, token, its in ((beside.rows[0], 1, logits[0]), (beside.rows[1], 3, logits[2])):
        row.gap = max(row.gap, beside.gap(row, token, its))
    beside.together.keep([0, 2])
    beside.step(3)
    assert_alike(beside)
    assert alone.gap <= ENVELOPE


def test_a_settle_that_raises_is_the_rows_own(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = Beside(tiny_graph(LLAMA))
    beside.add((20, plain), (20, evicting))

    def settle(self: Any, caches: list[Any]) -> None:
        raise ArithmeticError("no")

    monkeypatch.setattr(Evicting, "settle", settle)
    beside.graph(mx.array([[1], [2]]), cache=beside.together.caches)
    beside.together.settle()
    assert {index: str(error) for index, error in beside.together.failures().items()} == {1: "no"}
    assert beside.together.failures() == {}


def test_an_error_that_was_not_asked_for_stays_with_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Raising, "at", 20)
    beside = Beside(tiny_graph(LLAMA))
    beside.add((20, plain), (21, plain), (20, of(Raising)))
    beside.graph(mx.array([[1], [2], [3]]), cache=beside.together.caches)
    beside.together.keep([2, 1])
    assert list(beside.together.failures()) == [0]


def test_without_the_name_rows_are_stacked_again_after_every_settle() -> None:
    beside = Beside(tiny_graph(TINY["deepseek_v3"]), by_name=False)
    beside.add((24, evicting), (28, evicting), (12, plain))
    beside.step(9)
    assert beside.layouts()[0] == "Padded"
    assert not beside.together.failures()
    assert_alike(beside)


def test_without_the_name_a_class_of_ones_own_is_refused_and_nothing_has_changed() -> None:
    graph = tiny_graph(TINY["deepseek_v3"])
    beside = Beside(graph)
    beside.add((9, plain), (12, plain))
    own = [Halves() for _ in graph.layers]
    reason = why_not_together(own, by_name=False)
    assert reason is not None
    assert reason.startswith("Halves of layer 0: it attends row by row")
    assert why_not_together(own, by_name=True) is None
    with pytest.raises(SessionFailed, match="Halves of layer 0"):
        beside.together.add([own], [plain(graph)])
    beside.step(2)
    assert_alike(beside)


def test_a_class_that_only_stores_is_refused() -> None:
    reason = why_not_together([KVCache(), object()], by_name=True)
    assert reason == "object of layer 1: it has no update_and_fetch"


def test_rings_of_other_sizes_go_by_rows_and_are_refused_without_the_name() -> None:
    graph = tiny_graph(LLAMA)
    for by_name in (True, False):
        together, rows = Together(by_name=by_name), []
        for size in (16, 24):
            rows.append([RotatingKVCache(max_size=size) for _ in graph.layers])
            graph(mx.array([[1, 2, 3]]), cache=rows[-1])
        if by_name:
            together.add(rows, [plain(graph)] * 2)
            assert type(together.caches[0]).__name__ == "ByRows"
        else:
            with pytest.raises(SessionFailed, match="one class and setting"):
                together.add(rows, [plain(graph)] * 2)
            assert len(together) == 0
