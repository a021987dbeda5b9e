"""The keyed sampling primitive: the right distribution, the same draw alone and in any batch."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.sample_utils import apply_top_p
from scipy.stats import chisquare

from labkit.core.errors import SessionFailed
from labkit.core.sampling import Sampling
from labkit.engine.alternatives import alternatives
from labkit.engine.sampling import Drawer, draw
from labkit.numerics.gumbel import gumbel_noise
from tests.numerics.distributions import DTYPES, filtered_by_mlx_lm, logits_row, logprobs_of
from tests.numerics.tiny_models import LLAMA, tiny_model

LOGPROBS = mx.log(mx.array([0.5, 0.3, 0.15, 0.05]))
FULL: dict[str, Any] = {
    "top_p": 0.9,
    "top_k": 20,
    "min_p": 0.01,
    "min_tokens_to_keep": 2,
    "xtc_probability": 0.5,
    "xtc_special_tokens": (3,),
}
PENALTIES: dict[str, Any] = {
    "logit_bias": {3: 1.0},
    "repetition_penalty": 1.2,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.1,
}


def id_of(token: mx.array) -> int:
    """A token id on the host."""
    return int(np.array(token))


def state() -> list[int]:
    """The key of mlx's global generator."""
    key: Any = mx.random.state
    return np.array(key[0]).tolist()


def draws(sampling: Sampling, count: int) -> np.ndarray:
    tokens = [draw(LOGPROBS, sampling, 0, index) for index in range(count)]
    return np.bincount(np.array(mx.stack(tokens)), minlength=4) / count


def test_temperature_one_draws_from_the_distribution() -> None:
    # 4,000 draws: the standard error of a share is at most 0.008; 4 of them.
    assert np.abs(draws(Sampling(1.0), 4000) - [0.5, 0.3, 0.15, 0.05]).max() < 0.032


def test_temperature_sharpens_as_softmax_does() -> None:
    weights = np.array([0.5, 0.3, 0.15, 0.05]) ** 2
    assert np.abs(draws(Sampling(0.5), 4000) - weights / weights.sum()).max() < 0.032


def test_top_p_keeps_what_mlx_lm_keeps() -> None:
    kept = np.array(apply_top_p(LOGPROBS, 0.7)) > -np.inf
    assert kept.tolist() == [True, True, False, False]
    shares = draws(Sampling(1.0, 0.7), 4000)
    assert shares[2:].sum() == 0
    # Renormalised over the kept tokens; 4 standard errors.
    assert abs(shares[0] - 0.625) < 0.032


@pytest.mark.parametrize(
    ("sampling", "dtype"),
    [
        (Sampling(1.0, min_p=0.1), "float32"),
        (Sampling(0.7, top_k=6), "float16"),
        (Sampling(2.0, 0.8, min_p=0.05, min_tokens_to_keep=4, top_k=8), "bfloat16"),
        (Sampling(1.0, xtc_probability=1.0, xtc_threshold=0.1, top_p=0.95), "float32"),
    ],
    ids=["min-p", "top-k", "all but XTC", "XTC"],
)
def test_the_draw_follows_the_filtered_softmax(sampling: Sampling, dtype: str) -> None:
    logprobs = logprobs_of(logits_row("random", 24, dtype, seed=2) / 2)
    kept = filtered_by_mlx_lm(logprobs, sampling, 5, 0).astype(mx.float32)
    expected = np.array(mx.softmax(kept[0] / sampling.temperature)).astype(float)
    drawer = Drawer(sampling, 5)
    tokens = np.array(mx.stack([drawer.draw(logprobs, index) for index in range(3000)]))
    counts = np.bincount(tokens, minlength=24)
    assert counts[expected == 0].sum() == 0
    share = expected[expected > 0]
    # The seed is fixed; a right draw would fall below once in ten thousand seeds.
    assert chisquare(counts[expected > 0], share / share.sum() * 3000).pvalue > 1e-4


def test_xtc_by_chance_draws_from_both_distributions() -> None:
    logprobs = mx.log(mx.array([0.5, 0.3, 0.2]))
    drawer = Drawer(Sampling(1.0, xtc_probability=0.25, xtc_threshold=0.1), 3)
    tokens = np.array(mx.stack([drawer.draw(logprobs, index) for index in range(4000)]))
    # A quarter of the steps leaves only token 2; the rest draws from all three.
    expected = 4000 * np.array([0.75 * 0.5, 0.75 * 0.3, 0.25 + 0.75 * 0.2])
    assert chisquare(np.bincount(tokens, minlength=3), expected).pvalue > 1e-4


def test_greedy_is_the_first_argmax() -> None:
    assert draw(mx.array([1.0, 3.0, 3.0]), Sampling(), 5, 9).item() == 1


def test_noise_depends_on_seed_and_index_only() -> None:
    again = gumbel_noise(3, 7, 50)
    mx.random.seed(99)
    assert mx.array_equal(gumbel_noise(3, 7, 50), again)
    assert not mx.array_equal(gumbel_noise(3, 8, 50), again)
    assert not mx.array_equal(gumbel_noise(4, 7, 50), again)


def test_a_filtered_token_is_never_drawn_whatever_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A uniform of exactly 0 gives -inf, at which every token would be equal."""
    monkeypatch.setattr(mx.random, "gumbel", lambda shape, key: mx.full(shape, -np.inf))
    assert draw(LOGPROBS[::-1], Sampling(1.0, top_k=1), 0, 0).item() == 3


@pytest.mark.parametrize("temperature", [1e-6, 1e6])
@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_temperatures_draw_what_is_kept(temperature: float, dtype: str) -> None:
    logprobs = logprobs_of(logits_row("random", 50, dtype))
    best = int(np.argmax(np.array(logprobs.astype(mx.float32))))
    drawer = Drawer(Sampling(temperature, top_k=3), 0)
    kept = {token for token, _ in _top(logprobs, 3)}
    tokens = {id_of(drawer.draw(logprobs, index)) for index in range(60)}
    # At a million all three are equally likely: each is missed once in 10^10 seeds.
    assert tokens == ({best} if temperature < 1 else kept)


def _top(logprobs: mx.array, k: int) -> list[tuple[int, float]]:
    ids, values = (np.array(array).tolist() for array in alternatives(logprobs, mx.array(0), k)[:2])
    return list(zip(ids, values, strict=True))


@pytest.mark.parametrize("shape", [(-1,), (1, -1)])
def test_a_draw_is_one_id_whatever_the_shape_of_its_row(shape: tuple[int, ...]) -> None:
    row = logprobs_of(logits_row("random", 100, "float32"))
    for sampling in (Sampling(), Sampling(0.8), Sampling(0.8, **FULL)):
        token = draw(row.reshape(shape), sampling, 1, 2)
        assert token.shape == ()
        assert token.item() == draw(row, sampling, 1, 2).item()


def test_a_row_draws_the_same_alone_and_stacked() -> None:
    rows = mx.random.normal((5, 256), key=mx.random.key(1))
    alone = [draw(row, Sampling(0.8), 11, 3).item() for row in rows]
    noise = mx.stack([gumbel_noise(11, 3, 256)] * 5)
    stacked = mx.argmax(rows * (1.0 / 0.8) + noise, axis=-1).tolist()
    assert alone == stacked


def test_rows_of_a_batch_with_their_own_seeds_draw_as_alone() -> None:
    """As a batch does it: one graph for all rows, each with its own seed, position and settings."""
    rows = logprobs_of(mx.random.normal((6, 300), key=mx.random.key(2)) * 3)
    settings = [Sampling(0.6 + 0.2 * i, **(FULL if i % 2 else {})) for i in range(6)]
    drawers = [Drawer(sampling, seed) for seed, sampling in enumerate(settings)]
    batch = np.array(mx.stack([drawer.draw(rows[i], 10 + i) for i, drawer in enumerate(drawers)]))
    for i, sampling in enumerate(settings):
        assert draw(mx.array(np.array(rows[i])), sampling, i, 10 + i).item() == batch[i]


def test_nothing_waits_for_an_array() -> None:
    """mlx refuses to evaluate inside a function that it compiles."""
    drawer = Drawer(Sampling(0.8, **FULL, **PENALTIES), 0)

    def step(logits: mx.array, tokens: mx.array) -> list[mx.array]:
        logprobs = logprobs_of(drawer.process(logits, tokens))
        return [drawer.draw(logprobs, 4), *alternatives(logprobs, mx.array(3), 5)]

    logits, tokens = logits_row("random", 100, "float32"), mx.array([1, 2, 3])
    token, ids, *_ = mx.compile(step)(logits, tokens)
    expected, same, *_ = step(logits, tokens)
    assert (token.item(), ids.tolist()) == (expected.item(), same.tolist())


def test_the_global_generator_stays_as_it_was() -> None:
    mx.random.seed(123)
    before = state()
    drawer = Drawer(Sampling(0.8, **FULL, **PENALTIES), 0)
    logits = logits_row("random", 100, "float32")
    for index in range(20):
        logprobs = logprobs_of(drawer.process(logits, mx.array([1, 2, index])))
        mx.eval(drawer.draw(logprobs, index), alternatives(logprobs, mx.array(3), 5))
    assert state() == before
    sampling = Sampling(0.9, **FULL, **PENALTIES)
    model = tiny_model(LLAMA)
    mx.random.seed(123)
    model.session([5, 6, 7], max_tokens=6, stop_tokens=(), sampling=sampling, top_logprobs=3).run()
    assert state() == before


@pytest.mark.parametrize(
    ("given", "got"),
    [
        (None, "got:     NoneType"),
        (3, "got:     int"),
        (mx.array([1, 2]), "got:     int32 of shape (2,)"),
        (mx.array([1.0]), "got:     float32 of shape (1,)"),
        (mx.array([True]), "got:     bool of shape (1,)"),
    ],
)
def test_a_sampler_that_gives_no_id_is_refused_at_once(given: Any, got: str) -> None:
    with pytest.raises(SessionFailed, match="one integer token id") as caught:
        Drawer(Sampling(), 0, lambda _: given).draw(LOGPROBS, 0)
    assert got in str(caught.value)


@pytest.mark.parametrize("given", [-1, -2, 4, 2**31, 2**32 - 1, 2**40])
def test_a_sampler_that_leaves_the_vocabulary_never_reaches_the_model(given: int) -> None:
    drawer = Drawer(Sampling(), 0, lambda _: mx.array([given], dtype=mx.int64))
    token = id_of(drawer.draw(LOGPROBS, 0))
    assert -1 <= token < 4
    with pytest.raises(SessionFailed, match="token id of the vocabulary"):
        drawer.committed(token)


@pytest.mark.parametrize("dtype", [mx.uint32, mx.int32, mx.int64, mx.uint8])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_sampler_sees_the_row_and_gives_the_token(dtype: mx.Dtype, shape: tuple[int, ...]) -> None:
    seen: list[mx.array] = []

    def sampler(logprobs: mx.array) -> mx.array:
        seen.append(logprobs)
        return mx.full(shape, 2, dtype=dtype)

    drawer = Drawer(Sampling(), 0, sampler)
    token = drawer.draw(LOGPROBS, 0)
    assert (token.shape, drawer.committed(id_of(token))) == ((), 2)
    assert seen[0].shape == (1, 4)


def test_a_sampled_session_repeats_and_the_seed_matters() -> None:
    model = tiny_model(LLAMA)

    def tokens(seed: int) -> tuple[int, ...]:
        options = {"max_tokens": 12, "stop_tokens": (), "sampling": Sampling(1.0, 0.9)}
        return model.session([5, 6, 7], seed=seed, **options).run().tokens

    assert tokens(1) == tokens(1)
    assert tokens(1) != tokens(2)
