"""Taps: bits unchanged on every architecture of mlx-lm, and what is recorded is what the model did."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.cache import QuantizedKVCache, RotatingKVCache, make_prompt_cache

from labkit.core.errors import LabkitError
from labkit.model.attention_weights import attention_weights
from labkit.model.taps import Recorded, can_tap_attention, recording, tappable
from tests.numerics.tiny_configs import METAL_ONLY, TINY
from tests.numerics.tiny_models import GEMMA3, LLAMA, tiny_graph

ATTENTION = "scaled_dot_product_attention"
BY_HAND = "it has no attention, or computes it without mlx-lm's scaled_dot_product_attention"
# Past every window of 32, in chunks and in single steps that overwrite a rotating cache.
TOKENS = [(7 * i + 3) % 250 for i in range(70)]
CHUNKS = ((0, 40), (40, 66), (66, 67), (67, 68), (68, 69), (69, 70))
SWEPT = [name for name in TINY if name not in METAL_ONLY]
# MLX's CPU backend multiplies experts in f32 only.
IN_BF16 = ("llama", "qwen3", "gemma2", "gemma3_text", "mamba", "falcon_h1", "minicpm3")
# Sums of up to 70 probabilities in f32, each rounded to 6e-8.
ROUNDING = 2e-6


def layers_that(reasons: Sequence[str | None]) -> tuple[int, ...]:
    return tuple(index for index, why in enumerate(reasons) if why is None)


def everything(graph: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """All hidden states and all attention that can be recorded."""
    found = tappable(graph)
    return layers_that(found.hidden), layers_that(found.attention)


def evaluated(record: Recorded) -> Recorded:
    mx.eval(*record.hidden.values(), *record.attention.values())
    return record


def run(
    graph: Any,
    taps: tuple[Sequence[int], Sequence[int]] | None = None,
    caches: list[Any] | None = None,
    chunks: Sequence[tuple[int, int]] = CHUNKS,
) -> tuple[list[mx.array], list[Any], list[Recorded]]:
    """Logits of each chunk, the caches at the end, and what was recorded of each chunk."""
    caches = make_prompt_cache(graph) if caches is None else caches
    logits, records = [], []
    for start, end in chunks:
        tokens = mx.array([TOKENS[start:end]])
        if taps is None:
            logits.append(graph(tokens, cache=caches))
        else:
            with recording(graph, *taps) as record:
                logits.append(graph(tokens, cache=caches))
            records.append(evaluated(record))
        mx.eval(logits[-1])
    return logits, caches, records


def assert_same_bits(ours: Sequence[mx.array], theirs: Sequence[mx.array]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert mx.array_equal(a.reshape(-1).view(mx.uint8), b.reshape(-1).view(mx.uint8))


def arrays(caches: list[Any]) -> list[mx.array]:
    state = tree_flatten([cache.state for cache in caches])
    return [value for _, value in state if isinstance(value, mx.array) and value.size]


def assert_taps_change_nothing(graph: Any, make: Callable[[], list[Any]] | None = None) -> list[Recorded]:
    make = make or (lambda: make_prompt_cache(graph))
    plain, plain_caches, _ = run(graph, caches=make())
    tapped, tapped_caches, records = run(graph, everything(graph), make())
    assert_same_bits(tapped, plain)
    assert_same_bits(arrays(tapped_caches), arrays(plain_caches))
    return records


@pytest.mark.parametrize("name", SWEPT)
def test_no_bit_changes(name: str) -> None:
    graph = tiny_graph(TINY[name])
    before = [type(layer) for layer in graph.layers]
    records = assert_taps_change_nothing(graph)
    assert [type(layer) for layer in graph.layers] == before
    sinks = name in {"gpt_oss", "mimo_v2_flash"}
    for record, (start, end) in zip(records, CHUNKS, strict=True):
        for hidden in record.hidden.values():
            assert hidden.ndim == 2 and hidden.shape[0] == end - start
        for weights in record.attention.values():
            assert weights.dtype == mx.float32 and weights.shape[1] == end - start
            total = weights.sum(-1)
            assert mx.all(weights >= 0) and mx.all(total < 1 + ROUNDING)
            assert sinks or mx.all(total > 1 - ROUNDING)
            assert is_causal(weights)


def is_causal(weights: mx.array) -> bool:
    """No row attends to a later key: keys are in order, so the last `n` are the step's own."""
    n, keys = weights.shape[-2:]
    later = mx.arange(keys) > mx.arange(keys - n, keys)[:, None]
    return bool(mx.all(mx.where(later, weights, 0) == 0).item())


@pytest.mark.parametrize("name", IN_BF16)
def test_no_bit_changes_in_bf16(name: str) -> None:
    assert_taps_change_nothing(tiny_graph(TINY[name], mx.bfloat16))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_quantized_keys(name: str, bits: int, dtype: mx.Dtype) -> None:
    """mlx-lm scales the queries in place there; the recorded rows are those of the dequantized keys."""
    graph = tiny_graph(TINY[name], dtype)
    layers = range(len(graph.layers))
    records = assert_taps_change_nothing(graph, lambda: [QuantizedKVCache(64, bits) for _ in layers])
    last = records[-1].attention[0]
    assert last.shape[-1] == len(TOKENS)
    plain = run(graph, ((), (0,)))[2][-1].attention[0]
    # 8 bits move a probability by a few per mille; 4 bits by tens of times that, and not by nothing.
    assert 0 < float(mx.abs(last - plain).max()) < (0.01 if bits == 8 else 0.3)
    assert mx.all(mx.abs(last.sum(-1) - 1) < ROUNDING)


@pytest.mark.parametrize(
    ("name", "hidden", "attention"),
    [
        ("llama", (None, None), (None, None)),
        ("gemma2", (None, None), (BY_HAND, BY_HAND)),
        ("mamba", (None, None), (BY_HAND, BY_HAND)),
        ("qwen3_next", (None, None), (BY_HAND, None)),
        ("plamo2", (None, None), (BY_HAND, BY_HAND)),
        ("deepseek_v3", (None, None), (None, None)),
        ("deepseek_v32", (None, None), ("an indexer picks its keys (sparse attention)",) * 2),
        ("longcat_flash", (None, None), ("it attends 2 times",) * 2),
        ("iquestloopcoder", ("it cannot be called: TransformerBlock",) * 2, None),
        ("gemma3n", ("its output is not one row (1, n, hidden): (2, 1, 2, 128)",) * 4, (None,) * 4),
    ],
)
def test_what_can_be_tapped(name: str, hidden: tuple, attention: tuple | None) -> None:
    graph = tiny_graph(TINY[name])
    found = tappable(graph)
    assert found.hidden == hidden
    assert found.attention == (hidden if attention is None else attention)
    for layer, why in enumerate(found.attention):
        assert can_tap_attention(graph, layer) is (why is None)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("config", [LLAMA, GEMMA3], ids=["llama", "gemma3"])
def test_the_last_hidden_state_gives_the_logits(config: dict, dtype: mx.Dtype) -> None:
    graph = tiny_graph(config, dtype)
    last = len(graph.layers) - 1
    logits, _, records = run(graph, ((last,), ()))
    for ours, record in zip(logits, records, strict=True):
        normed = graph.model.norm(record.hidden[last][None])
        head = graph.lm_head if "lm_head" in graph else graph.model.embed_tokens.as_linear
        assert_same_bits([head(normed)], [ours])


def test_each_hidden_state_is_the_next_layers_input() -> None:
    graph = tiny_graph(LLAMA)
    _, _, records = run(graph, ((0, 1), ()), chunks=[(0, 40)])
    first = records[0].hidden[0][None]
    assert_same_bits([graph.layers[1](first, "causal", None)[0]], [records[0].hidden[1]])


def test_attention_and_values_give_the_attention_output() -> None:
    graph = tiny_graph(LLAMA)
    _, _, (record,) = run(graph, ((0,), (1,)), chunks=[(0, 40)])
    layer, weights = graph.layers[1], record.attention[1]
    normed = layer.input_layernorm(record.hidden[0][None])
    values = layer.self_attn.v_proj(normed).reshape(1, 40, 1, 64).transpose(0, 2, 1, 3)
    mixed = (weights[None] @ values).transpose(0, 2, 1, 3).reshape(1, 40, -1)
    expected = layer.self_attn(normed, "causal")
    # Two orders of f32 sums over 40 keys and 128 columns of values below 1.
    assert mx.allclose(layer.self_attn.o_proj(mixed), expected, atol=1e-5, rtol=0)
    assert float(mx.abs(expected).max()) > 0.1


@pytest.mark.parametrize("name", ["gemma3_text", "gemma4_text", "llama4", "baichuan_m1", "recurrent_gemma"])
def test_keys_of_a_full_window_come_in_order(name: str) -> None:
    """Single steps over a rotating cache record what one forward over everything does."""
    graph = tiny_graph(TINY[name])
    _, attention = everything(graph)
    _, _, (whole,) = run(graph, ((), attention), chunks=[(0, 70)])
    _, _, steps = run(graph, ((), attention))
    shorter = 0
    for layer in attention:
        last = steps[-1].attention[layer][:, -1]
        keys = last.shape[-1]
        shorter += keys < len(TOKENS)
        # The orders of sums differ between one forward and many: a few f32 roundings through the layers.
        assert mx.allclose(last, whole.attention[layer][:, -1, -keys:], atol=1e-4, rtol=0)
    assert shorter


def test_keys_that_are_never_overwritten_stay_first() -> None:
    graph = tiny_graph(LLAMA)
    caches = [RotatingKVCache(max_size=32, keep=4) for _ in graph.layers]
    _, _, records = run(graph, ((), (0,)), caches)
    cache = caches[0]
    newest, stored = cache._idx, cast(mx.array, cache.keys)
    assert 4 < newest < 32
    parts = [stored[..., a:b, :] for a, b in ((0, 4), (newest, 32), (4, newest))]
    keys = mx.concatenate(parts, axis=2)
    layer = graph.layers[0]
    normed = layer.input_layernorm(graph.model.embed_tokens(mx.array([TOKENS[-1:]])))
    queries = layer.self_attn.q_proj(normed).reshape(1, 1, 2, 64).transpose(0, 2, 1, 3)
    queries = layer.self_attn.rope(queries, offset=cache.offset - 1)
    expected = attention_weights(queries, keys, scale=layer.self_attn.scale)
    assert mx.allclose(records[-1].attention[0], expected[0], atol=1e-6, rtol=0)  # one f32 rounding each


def test_sinks_take_their_share() -> None:
    queries, keys = mx.random.normal((1, 4, 3, 8)), mx.random.normal((1, 2, 5, 8))
    sinks = mx.array([-1e9, 0.0, 1.0, 50.0])
    weights = attention_weights(queries, keys, scale=0.3, mask="causal", sinks=sinks)
    values = mx.broadcast_to(mx.eye(5), (1, 2, 5, 5))
    fast = mx.fast.scaled_dot_product_attention(
        queries, keys, mx.pad(values, [(0, 0)] * 3 + [(0, 3)]), scale=0.3, mask="causal", sinks=sinks
    )
    # With the identity as values the output is the probabilities themselves, rounded once or twice.
    assert mx.allclose(weights, fast[..., :5], atol=1e-6, rtol=0)
    assert mx.allclose(weights[0, 0].sum(-1), mx.ones(3), atol=1e-6) and mx.all(weights[0, 3] < 1e-6)


@pytest.mark.parametrize("kind", ["none", "causal", "bool", "added", "row"])
def test_masks_mean_what_they_mean_to_mlx(kind: str) -> None:
    queries, keys = mx.random.normal((1, 4, 3, 8)), mx.random.normal((1, 2, 5, 8))
    masks = {
        "none": None,
        "causal": "causal",
        "bool": mx.array([[[[1, 0, 1, 1, 0]] * 3]]) > 0,
        "added": mx.random.normal((1, 4, 3, 5)),
        "row": mx.array([True, False, True, True, False]),
    }
    values = mx.pad(mx.broadcast_to(mx.eye(5), (1, 2, 5, 5)), [(0, 0)] * 3 + [(0, 3)])
    given = {"scale": 0.3, "mask": masks[kind]}
    fast = mx.fast.scaled_dot_product_attention(queries, keys, values, **given)
    assert mx.allclose(attention_weights(queries, keys, **given), fast[..., :5], atol=1e-6, rtol=0)


def test_keys_of_another_kind_are_refused() -> None:
    with pytest.raises(LabkitError, match=r"quantized triple were needed[\s\S]*str of NoneType"):
        attention_weights(mx.zeros((1, 2, 3, 8)), "blocks")


def test_everything_is_as_it_was_after_an_exception() -> None:
    graph = tiny_graph(LLAMA)
    before = [type(layer) for layer in graph.layers]
    module = sys.modules[type(graph).__module__]
    function = vars(module)[ATTENTION]

    class Broken:
        offset = 0

        def update_and_fetch(self, keys: Any, values: Any) -> Any:
            assert type(graph.layers[0]) is not before[0] and isinstance(graph.layers[0], before[0])
            assert vars(module)[ATTENTION] is not function
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"), recording(graph, (0, 1), (0, 1)):
        graph(mx.array([[1, 2, 3]]), cache=[Broken(), Broken()])
    assert [type(layer) for layer in graph.layers] == before
    assert vars(module)[ATTENTION] is function
    assert_taps_change_nothing(graph)


def test_a_tapped_layer_is_still_the_layer() -> None:
    graph = tiny_graph(LLAMA)
    parameters = [name for name, _ in tree_flatten(graph.parameters())]
    kind, shown = type(graph.layers[0]), repr(graph.layers[0])
    with recording(graph, (0,), ()):
        assert isinstance(graph.layers[0], kind) and graph.layers[0].self_attn is not None
        assert repr(graph.layers[0]) == shown
        assert [name for name, _ in tree_flatten(graph.parameters())] == parameters
        graph(mx.array([[1, 2, 3]]))


def test_nested_recordings_each_have_their_own() -> None:
    graph, tokens = tiny_graph(LLAMA), mx.array([TOKENS[:5]])
    plain = graph(tokens)
    with recording(graph, (0, 1), (1,)) as outer:
        with recording(graph, (1,), (0,)) as inner:
            logits = graph(tokens)
        assert_same_bits([graph(tokens), logits], [plain, plain])
    assert set(outer.hidden) == {0, 1} and set(inner.hidden) == {1}
    assert set(outer.attention) == {1} and set(inner.attention) == {0}
    assert_same_bits([outer.hidden[1]], [inner.hidden[1]])


def test_recordings_may_end_in_any_order() -> None:
    graph, tokens = tiny_graph(LLAMA), mx.array([TOKENS[:5]])
    kind, module = type(graph.layers[0]), vars(sys.modules[type(graph).__module__])
    function = module[ATTENTION]
    first, second = recording(graph, (0,), (0,)), recording(graph, (0,), (0,))
    first.__enter__()
    later = second.__enter__()
    graph(tokens)
    first.__exit__(None, None, None)
    assert type(graph.layers[0]) is not kind
    second.__exit__(None, None, None)
    assert type(graph.layers[0]) is kind and module[ATTENTION] is function
    assert later.attention[0].shape == (2, 5, 5)


def test_two_models_of_one_architecture_do_not_mix() -> None:
    ours, other = tiny_graph(LLAMA), tiny_graph({**LLAMA, "num_attention_heads": 4})
    with recording(ours, (0,), (0,)) as record:
        ours(mx.array([TOKENS[:5]]))
        other(mx.array([TOKENS[:9]]))
    assert record.attention[0].shape == (2, 5, 5) and record.hidden[0].shape == (5, 128)


def test_another_threads_forward_is_not_recorded() -> None:
    graph = tiny_graph(LLAMA)
    with recording(graph, (0,), (0,)) as record:
        graph(mx.array([TOKENS[:5]]))
        thread = threading.Thread(target=lambda: graph(mx.array([TOKENS[:9]])))
        thread.start()
        thread.join()
    assert record.attention[0].shape == (2, 5, 5) and record.hidden[0].shape == (5, 128)


def test_nothing_is_kept() -> None:
    graph = tiny_graph(LLAMA)
    run(graph, ((0, 1), (0, 1)))
    mx.clear_cache()
    before = mx.get_active_memory()
    records = run(graph, ((0, 1), (0, 1)), chunks=[(0, 70)])[2]
    held = mx.get_active_memory() - before
    # Two times 70 x 128 hidden and 2 x 70 x 70 attention numbers of 4 bytes, at least.
    assert held >= 2 * 4 * (70 * 128 + 2 * 70 * 70)
    del records
    assert mx.get_active_memory() == before


@pytest.mark.parametrize("layer", [2, -1, True, 1.0, "0"])
def test_layers_that_are_not_there(layer: Any) -> None:
    with (
        pytest.raises(LabkitError, match="a layer from 0 to 1 was needed"),
        recording(tiny_graph(LLAMA), (layer,), ()),
    ):
        pass


def test_layers_of_another_rank_and_shared_ones() -> None:
    graph = tiny_graph(LLAMA)
    kept = list(graph.model.layers)
    graph.model.layers = [None, kept[1]]
    with pytest.raises(LabkitError, match="another rank"), recording(graph, (0,), ()):
        pass
    graph.model.layers = [kept[0], kept[0]]
    assert tappable(graph).attention == ("it stands at several places",) * 2
    assert not can_tap_attention(graph, 0)


def test_what_was_not_recorded_is_said() -> None:
    with pytest.raises(LabkitError, match=r"layer 0 cannot be recorded[\s\S]*has no attention"):
        run(tiny_graph(TINY["gemma2"]), ((), (0,)))
    with pytest.raises(LabkitError, match="does not call it"), recording(tiny_graph(LLAMA), (1,), ()):
        pass


def test_a_graph_without_layers() -> None:
    with pytest.raises(LabkitError, match="a graph with a list of layers"):
        tappable(object())
