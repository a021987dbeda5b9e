"""Streaming scores of a tiny random llama: against a plain forward, through a file, and its refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import llama
from mlx_lm.models.cache import KVCache, QuantizedKVCache, make_prompt_cache

from labkit.core.errors import ScoreInvalid
from labkit.core.events import Event, Progress
from labkit.model.quality import summarize
from labkit.model.score import CachedLogits, score_against, stream_score, write_reference
from labkit.model.windows import Window, Windows

VOCAB = 97


@pytest.fixture(scope="module")
def model() -> llama.Model:
    mx.random.seed(1)
    args = llama.ModelArgs(
        model_type="llama",
        hidden_size=64,
        num_hidden_layers=2,
        intermediate_size=96,
        num_attention_heads=2,
        rms_norm_eps=1e-5,
        vocab_size=VOCAB,
        head_dim=32,
        num_key_value_heads=1,
    )
    built = llama.Model(args)
    built.apply(lambda p: p * 3)
    mx.eval(built.parameters())
    return built


@pytest.fixture(scope="module")
def windows() -> Windows:
    tokens = np.random.default_rng(3).integers(0, VOCAB, 3 * 40 + 5)
    return Windows.cut(tuple(tokens.tolist()), 40)


def plain(model: llama.Model, block: int = 8) -> CachedLogits:
    return CachedLogits(model, lambda: make_prompt_cache(model), block=block)


def quantize_all(caches: list[Any]) -> None:
    for layer, cache in enumerate(caches):
        if isinstance(cache, KVCache):
            caches[layer] = cache.to_quantized(group_size=32, bits=4)


def quantized(model: llama.Model) -> CachedLogits:
    return replace(plain(model), after_call=quantize_all)


@dataclass(frozen=True)
class Given:
    """Blocks of logits that are what a test says."""

    blocks: tuple[mx.array, ...]

    def scored_logits(self, window: Window) -> Iterator[mx.array]:
        yield from self.blocks


def test_blocks_continue_one_forward(model: llama.Model, windows: Windows) -> None:
    window = windows[1]
    whole = np.array(model(mx.array([window.tokens]))[0])[window.context_tokens : -1]
    blocks = list(plain(model).scored_logits(window))
    assert [block.shape for block in blocks] == [(8, VOCAB), (8, VOCAB), (3, VOCAB)]
    # f32 sums in another order for other chunk lengths; logits reach 30, and a slip would be of order 1.
    np.testing.assert_allclose(np.concatenate([np.array(b) for b in blocks]), whole, atol=1e-3)


def test_nll_is_that_of_the_next_token(model: llama.Model, windows: Windows) -> None:
    window = windows[0]
    logits = np.array(model(mx.array([window.tokens]))[0]).astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = [-logprobs[i, window.tokens[i + 1]] for i in range(20, 39)]
    score = stream_score(plain(model), plain(model), windows)[0]
    np.testing.assert_allclose(score.nll_reference, expected, atol=1e-3)  # chunked, as above


def test_same_arm_is_exactly_the_same(model: llama.Model, windows: Windows) -> None:
    summary = summarize(stream_score(plain(model), plain(model), windows))
    assert (summary.kl_mean_nats, summary.kl_max_nats, summary.kl_mean_se) == (0.0, 0.0, 0.0)
    assert (summary.ppl_ratio, summary.ppl_ratio_low, summary.ppl_ratio_high) == (1.0, 1.0, 1.0)
    assert summary.top1_agreement == 1.0
    assert summary.positions == 3 * 19


def test_hook_runs_after_each_forward(model: llama.Model, windows: Windows) -> None:
    window = windows[0]
    caches = make_prompt_cache(model)
    model(mx.array([window.context]), cache=caches)
    quantize_all(caches)
    by_hand = []
    for start in (0, 8, 16):
        by_hand.append(model(mx.array([window.inputs[start : start + 8]]), cache=caches)[0])
        quantize_all(caches)
    assert all(isinstance(cache, QuantizedKVCache) for cache in caches)
    for expected, got in zip(by_hand, quantized(model).scored_logits(window), strict=True):
        np.testing.assert_array_equal(np.array(got), np.array(expected))


def test_quantized_arm_differs(model: llama.Model, windows: Windows) -> None:
    scores = stream_score(plain(model), quantized(model), windows)
    assert all(min(score.kl_nats) > 0 for score in scores)


def test_through_a_file_is_the_same(model: llama.Model, windows: Windows, tmp_path: Path) -> None:
    path = tmp_path / "reference.npy"
    for window, streamed in zip(windows, stream_score(plain(model), quantized(model), windows), strict=True):
        write_reference(plain(model), window, path)
        assert score_against(path, quantized(model), window) == streamed
    assert path.stat().st_size == pytest.approx(19 * VOCAB * 4, abs=256)  # rows, and the .npy header


def test_progress_counts_windows(model: llama.Model, windows: Windows) -> None:
    seen: list[Event] = []
    stream_score(plain(model), plain(model), windows, seen.append)
    assert [(p.done, p.total) for p in seen if isinstance(p, Progress)] == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_only_a_block_or_two_is_held() -> None:
    window = Window(tuple(range(258)), 1)
    block_bytes = 16 * 20_000 * 4

    class Endless:
        def scored_logits(self, window: Window) -> Iterator[mx.array]:
            for start in range(0, window.scored, 16):
                block = mx.random.normal((16, 20_000), key=mx.random.key(start))
                mx.eval(block)
                yield block

    before = mx.get_active_memory()
    mx.reset_peak_memory()
    stream_score(Endless(), Endless(), Windows((window.tokens,), 258, 1))
    # Two blocks of each and the temporaries of one comparison; all of both would be 32 blocks.
    assert mx.get_peak_memory() - before < 20 * block_bytes


def test_sources_must_agree_on_blocks(model: llama.Model, windows: Windows) -> None:
    with pytest.raises(ScoreInvalid, match=r"\(8, 97\) and \(4, 97\)"):
        stream_score(plain(model), plain(model, block=4), windows)


@pytest.mark.parametrize("rows", [(2,), (2, 2)])
def test_every_scored_position_is_needed(rows: tuple[int, ...], tmp_path: Path) -> None:
    window = Window((1, 2, 3, 4, 0), 1)
    source = Given(tuple(mx.zeros((n, 5)) for n in rows))
    path = tmp_path / "reference.npy"
    with pytest.raises(ScoreInvalid, match="3 scored positions"):
        stream_score(source, source, Windows((window.tokens,), 5, 1))
    with pytest.raises(ScoreInvalid, match="3 scored positions"):
        write_reference(source, window, path)
    assert not path.exists()


def test_not_finite_is_refused(tmp_path: Path) -> None:
    window = Window((1, 2, 3, 4, 0), 2)
    good = Given((mx.zeros((2, 5)),))
    bad = Given((mx.array([[0.0] * 5, [float("nan")] * 5]),))
    with pytest.raises(ScoreInvalid, match="position 3 of a window"):
        stream_score(good, bad, Windows((window.tokens,), 5, 2))


def test_interrupted_reference_leaves_no_file(tmp_path: Path) -> None:
    class Interrupted:
        def scored_logits(self, window: Window) -> Iterator[mx.array]:
            yield mx.zeros((1, 5))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_reference(Interrupted(), Window((1, 2, 3, 4, 0), 1), tmp_path / "reference.npy")
    assert list(tmp_path.iterdir()) == []


def test_unreadable_reference(model: llama.Model, windows: Windows, tmp_path: Path) -> None:
    missing, foreign = tmp_path / "missing.npy", tmp_path / "foreign.npy"
    foreign.write_text("not an array")
    for path in (missing, foreign):
        with pytest.raises(ScoreInvalid, match="reference log-probabilities"):
            score_against(path, plain(model), windows[0])
    np.save(foreign, np.zeros((19, VOCAB + 1), dtype=np.float32))
    with pytest.raises(ScoreInvalid, match="one vocabulary"):
        score_against(foreign, plain(model), windows[0])
