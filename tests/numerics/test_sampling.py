"""The keyed sampling primitive: the right distribution, the same draw alone and in any batch."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from mlx_lm.sample_utils import apply_top_p

from labkit.core.sampling import Sampling
from labkit.engine.sampling import draw
from labkit.numerics.gumbel import gumbel_noise
from tests.numerics.tiny_models import LLAMA, tiny_model

LOGPROBS = mx.log(mx.array([0.5, 0.3, 0.15, 0.05]))


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


def test_greedy_is_the_first_argmax() -> None:
    assert draw(mx.array([1.0, 3.0, 3.0]), Sampling(), 5, 9).item() == 1


def test_noise_depends_on_seed_and_index_only() -> None:
    again = gumbel_noise(3, 7, 50)
    mx.random.seed(99)
    assert mx.array_equal(gumbel_noise(3, 7, 50), again)
    assert not mx.array_equal(gumbel_noise(3, 8, 50), again)
    assert not mx.array_equal(gumbel_noise(4, 7, 50), again)


def test_a_row_draws_the_same_alone_and_stacked() -> None:
    rows = mx.random.normal((5, 256), key=mx.random.key(1))
    alone = [draw(row, Sampling(0.8), 11, 3).item() for row in rows]
    noise = mx.stack([gumbel_noise(11, 3, 256)] * 5)
    stacked = mx.argmax(rows * (1.0 / 0.8) + noise, axis=-1).tolist()
    assert alone == stacked


def test_a_sampled_session_repeats_and_the_seed_matters() -> None:
    model = tiny_model(LLAMA)

    def tokens(seed: int) -> tuple[int, ...]:
        options = {"max_tokens": 12, "stop_tokens": (), "sampling": Sampling(1.0, 0.9)}
        return model.session([5, 6, 7], seed=seed, **options).run().tokens

    assert tokens(1) == tokens(1)
    assert tokens(1) != tokens(2)
