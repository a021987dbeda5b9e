"""The attention seam: a cache of one's own attends itself on every architecture, mlx-lm's own see no seam."""

from __future__ import annotations

import sys
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models import base
from mlx_lm.models.cache import KVCache, QuantizedKVCache, make_prompt_cache

from labkit.core.kv_setting import QUANTIZABLE, KVSetting, LayerKV
from labkit.kv.affine import Affine
from labkit.kv.quantized import SplitQuantizedKVCache
from labkit.kv.rotating_quantized import RotatingSplitQuantizedKVCache
from labkit.model.attention import bind_attention
from labkit.model.dry_run import trace
from labkit.model.tap_points import ATTENTION, listening_to_attention
from labkit.model.taps import recording
from tests.numerics.rotated_scheme import Rotated, RotatedScheme
from tests.numerics.tiny_configs import METAL_ONLY, TINY
from tests.numerics.tiny_models import GEMMA3, tiny_graph, tiny_model

# The window of the tiny models is passed.
CHUNKS = (30, 17, 1, 1, 5, 1)
SHIFT = 37
# Their attention takes sinks, which mlx-lm's quantized one does not, or attends twice with one query.
ATTENDED_ONLY = {"gpt_oss", "mimo_v2_flash", "iquestloopcoder"}


def namespace(graph: Any) -> dict[str, Any]:
    parts = [vars(sys.modules[type(part).__module__]) for part in graph.modules()]
    return next(module for module in parts if ATTENTION in module)


def last_logits(graph: Any, scheme: Any) -> mx.array:
    """Logits after several chunks, the caches settled after each."""
    caches = scheme.make(graph)
    logits = mx.zeros(())
    for index, chunk in enumerate(CHUNKS):
        tokens = (mx.arange(chunk) * SHIFT + index) % 256
        logits = graph(tokens[None], cache=caches)
        scheme.settle(caches)
        mx.eval(logits)
    return logits[0, -1]


@pytest.mark.parametrize("config", [TINY["llama"], TINY["qwen3"], GEMMA3], ids=["llama", "qwen3", "gemma3"])
def test_a_scheme_with_its_own_attention_runs_on_what_does_not_know_it(config: dict[str, Any]) -> None:
    model, prompt = tiny_model(config), list(range(1, 41))
    options: dict[str, Any] = {"max_tokens": 8, "prefill_chunk": 16, "logprobs": True, "stop_tokens": ()}
    plain = [step for step in model.session(prompt, **options).steps() if step.tokens]
    Rotated.calls.clear()
    steps = [step for step in model.session(prompt, kv=RotatedScheme, **options).steps() if step.tokens]
    layers = len(model.graph.layers)
    # Three chunks and eight tokens.
    assert len(Rotated.calls) == layers * (3 + 8)
    assert set(Rotated.calls) == {"RotatedKVCache", *({"RotatedRing"} if config is GEMMA3 else ())}
    for step, want in zip(steps, plain, strict=True):
        assert step.logprobs is not None
        # The order of f32 sums in another basis, over logits of about 1.
        assert mx.allclose(step.logprobs, want.logprobs, rtol=0, atol=1e-4)


def test_without_the_seam_the_same_scheme_gives_something_else() -> None:
    """The rotation is seen by nobody but the seam: mlx-lm's own function takes turned keys for plain ones."""
    graph = tiny_graph(GEMMA3)
    held = namespace(graph)
    through, seam = last_logits(graph, RotatedScheme(KVSetting("rotated"))), held[ATTENTION]
    held[ATTENTION] = seam.original
    try:
        past = last_logits(graph, RotatedScheme(KVSetting("rotated")))
    finally:
        held[ATTENTION] = seam
    assert mx.abs(through - past).max() > 1e-2


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3_text", "cohere2", "qwen3_next"])
@pytest.mark.parametrize("bits", [None, 8])
def test_caches_of_mlx_lm_get_what_mlx_lm_gives_them(name: str, bits: int | None) -> None:
    graph = tiny_graph(TINY[name])
    held = namespace(graph)
    kept = None if bits is None else LayerKV(bits, bits)
    own = [type(cache).__name__ in QUANTIZABLE for cache in make_prompt_cache(graph)]
    scheme = Affine(KVSetting("affine", tuple(kept if quantizable else None for quantizable in own)))
    bound, seam = last_logits(graph, scheme), held[ATTENTION]
    assert seam.original is base.scaled_dot_product_attention
    held[ATTENTION] = seam.original
    try:
        assert mx.array_equal(last_logits(graph, scheme), bound)
    finally:
        held[ATTENTION] = seam


@pytest.mark.parametrize("cache", [None, KVCache(), QuantizedKVCache()], ids=["none", "plain", "quantized"])
def test_arguments_and_results_pass_as_they_are(cache: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = tiny_graph(TINY["llama"])
    seam, result, heard = namespace(graph)[ATTENTION], object(), []

    def original(*given: Any, **named: Any) -> Any:
        heard.append((*given, *named.values()))
        return result

    monkeypatch.setattr(seam, "original", original)
    arguments = tuple(object() for _ in range(3))
    assert seam(*arguments, cache, 0.5, None) is result
    assert seam(*arguments, cache=cache, scale=0.5, mask=None, sinks=None) is result
    for given in heard:
        assert all(
            one is other for one, other in zip(given, (*arguments, cache, 0.5, None, None), strict=True)
        )


def test_a_module_is_bound_once_however_many_graphs_it_has() -> None:
    graphs = [tiny_graph(TINY["llama"]) for _ in range(2)]
    held = namespace(graphs[0])
    seam = held[ATTENTION]
    bind_attention(graphs[1])
    assert held[ATTENTION] is seam
    assert seam.original is base.scaled_dot_product_attention


def test_a_graph_that_is_bound_under_a_tap_is_bound_below_it() -> None:
    graph = tiny_graph(TINY["llama"])
    held = namespace(graph)
    seam, heard = held[ATTENTION], []
    held[ATTENTION] = seam.original
    with listening_to_attention(graph.layers, heard.append):
        bind_attention(graph)
        bind_attention(graph)
        graph(mx.array([[1, 2]]), cache=RotatedScheme(KVSetting("rotated")).make(graph))
    assert len(heard) == 2
    assert type(held[ATTENTION]) is type(seam)
    assert held[ATTENTION].original is base.scaled_dot_product_attention


class EvenBitsOfOurOwn(Affine):
    """Codes of 8 bits that attend themselves, where `affine:8` leaves attention to mlx-lm."""

    def settle(self, caches: list[Any]) -> None:
        forms: dict[str, Any] = {
            "KVCache": SplitQuantizedKVCache,
            "RotatingKVCache": RotatingSplitQuantizedKVCache,
        }
        for layer, cache in enumerate(caches):
            kept, form = self._setting.layer(layer), forms.get(type(cache).__name__)
            if kept is not None and form is not None:
                caches[layer] = form.of(cache, kept)


@pytest.mark.parametrize("name", [name for name in TINY if name not in METAL_ONLY])
def test_every_architecture_that_reads_codes_calls_attention_by_its_name(name: str) -> None:
    """Wherever the dry run promises it, labkit's attention over even codes is mlx-lm's, bit for bit."""
    graph = tiny_graph(TINY[name])
    own = [type(cache).__name__ in QUANTIZABLE for cache in make_prompt_cache(graph)]
    setting = KVSetting("affine", tuple(LayerKV(8, 8, 32) if quantizable else None for quantizable in own))
    if trace(graph).quantizes:
        ours = last_logits(graph, EvenBitsOfOurOwn(setting))
        assert mx.array_equal(ours, last_logits(graph, Affine(setting)), equal_nan=True)
    elif any(own) and name not in ATTENDED_ONLY:
        with pytest.raises((TypeError, AttributeError)):
            last_logits(graph, EvenBitsOfOurOwn(setting))


@pytest.mark.parametrize("name", sorted(ATTENDED_ONLY))
def test_what_the_dry_run_refuses_for_mlx_lm_attends_through_the_seam(name: str) -> None:
    """The refusal is on the safe side: a scheme with its own attention would run there."""
    graph = tiny_graph(TINY[name])
    assert not trace(graph).quantizes
    caches = make_prompt_cache(graph)
    plain = last_logits(graph, Affine(KVSetting("affine", (None,) * len(caches))))
    ours = last_logits(graph, EvenBitsOfOurOwn(KVSetting("affine", (LayerKV(8, 8, 32),) * len(caches))))
    # 255 steps a group: logits of about 1 move by about 0.01.
    assert mx.abs(ours - plain).max() < 0.05


@pytest.mark.parametrize("kept", [LayerKV(8, 8), LayerKV(8, 4), LayerKV(8, 8, short=True)], ids=repr)
def test_attention_is_recorded_over_codes(kept: LayerKV) -> None:
    """As over the numbers that the codes stand for, the oldest key first; the tap moves no bit."""
    graph = tiny_graph(GEMMA3)
    layers = len(graph.layers)
    scheme, plain = Affine(KVSetting("affine", (kept,) * layers)), Affine(KVSetting("affine"))
    tokens = [mx.array([[7]]), (mx.arange(40) * SHIFT % 256)[None]]

    def forward(scheme: Affine, taps: tuple[int, ...]) -> tuple[mx.array, dict[int, mx.array]]:
        caches = scheme.make(graph)
        graph(tokens[1], cache=caches)
        scheme.settle(caches)
        with recording(graph, (), taps) as recorded:
            logits = graph(tokens[0], cache=caches)
        return logits, recorded.attention

    logits, attention = forward(scheme, tuple(range(layers)))
    assert mx.array_equal(logits, forward(scheme, ())[0])
    expected = forward(plain, tuple(range(layers)))[1]
    for layer in range(layers):
        rows = attention[layer]
        assert rows.shape == expected[layer].shape
        # f32 sums over at most 41 weights.
        assert mx.abs(rows.sum(axis=-1) - 1).max() < 1e-5
    # The first layer, a ring that has turned, sees the same queries; its keys have 255 steps a group, which
    # move scores by about 0.02.
    assert mx.abs(attention[0] - expected[0]).max() < 0.02
