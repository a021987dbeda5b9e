"""Filters against mlx-lm's own, bit for bit, on every kind of distribution."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm import sample_utils

from labkit.core.sampling import Sampling
from labkit.engine.filters import Filters, exclude_top_choices
from labkit.engine.sampling import Drawer
from labkit.numerics.gumbel import keyed_uniform
from tests.numerics.distributions import (
    DTYPES,
    KINDS,
    assert_same_bits,
    filtered_by_mlx_lm,
    logits_row,
    logprobs_of,
)

ALONE: dict[str, dict[str, Any]] = {
    "top_p": {"top_p": 0.7},
    "top_k": {"top_k": 3},
    "min_p": {"min_p": 0.2},
    "min_p keeping": {"min_p": 0.9, "min_tokens_to_keep": 3},
    "xtc": {"xtc_probability": 1.0, "xtc_threshold": 0.1},
    "xtc sparing": {"xtc_probability": 1.0, "xtc_threshold": 0.05, "xtc_special_tokens": (2, 0)},
    "xtc by chance": {"xtc_probability": 0.5, "xtc_threshold": 0.05},
}


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_each_filter_alone_is_mlx_lms(kind: str, dtype: str, name: str) -> None:
    sampling = Sampling(1.0, **ALONE[name])
    filters = Filters(sampling, seed=4)
    for size in (4, 17, 256, 5000):
        logprobs = logprobs_of(logits_row(kind, size, dtype, seed=size))
        for index in range(3):
            expected = filtered_by_mlx_lm(logprobs, sampling, 4, index)
            assert_same_bits(filters(logprobs, index), expected)
            assert_same_bits(filters(logprobs[0], index), expected[0])


VOCABULARY = 64
# A few values each: mlx compiles a filter anew for every number and dtype that it is given.
sampling_settings = st.builds(
    Sampling,
    temperature=st.floats(0.1, 3),
    top_p=st.sampled_from([1.0, 0.9, 0.3]),
    top_k=st.sampled_from([0, 2, VOCABULARY - 1]),
    min_p=st.sampled_from([0.0, 0.05, 1.0]),
    min_tokens_to_keep=st.sampled_from([1, 30]),
    xtc_probability=st.sampled_from([0.0, 0.5, 1.0]),
    xtc_threshold=st.sampled_from([0.01, 0.2]),
    xtc_special_tokens=st.sampled_from([(), (VOCABULARY // 2, 3)]),
)


@settings(max_examples=150, deadline=None)
@given(
    sampling_settings, st.sampled_from(list(KINDS)), st.sampled_from(list(DTYPES)), st.integers(0, 2**63 - 1)
)
def test_filters_combined_are_mlx_lms_chain(sampling: Sampling, kind: str, dtype: str, seed: int) -> None:
    logprobs = logprobs_of(logits_row(kind, VOCABULARY, dtype, seed=seed % 1000))
    index = seed % 77
    kept = Filters(sampling, seed)(logprobs, index)
    assert_same_bits(kept, filtered_by_mlx_lm(logprobs, sampling, seed, index))
    drawn = Drawer(sampling, seed).draw(logprobs, index)
    assert mx.isfinite(kept[0, drawn]).item(), "a token that was filtered out was drawn"


@settings(max_examples=60, deadline=None)
@given(sampling_settings, st.sampled_from(list(KINDS)), st.sampled_from(list(DTYPES)))
def test_what_can_be_drawn_is_what_make_sampler_can_draw(sampling: Sampling, kind: str, dtype: str) -> None:
    """The chain of make_sampler itself, up to its draw. XTC at a coin that never matters."""
    probability = float(sampling.xtc_probability > 0)
    fields = {
        name: getattr(sampling, name)
        for name in ("top_p", "min_p", "min_tokens_to_keep", "top_k", "xtc_threshold")
    }
    given_up: list[mx.array] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_utils, "categorical_sampling", lambda logprobs, _: given_up.append(logprobs))
        special = list(sampling.xtc_special_tokens)
        sampler = sample_utils.make_sampler(
            sampling.temperature, **fields, xtc_probability=probability, xtc_special_tokens=special
        )
        logprobs = logprobs_of(logits_row(kind, VOCABULARY, dtype))
        sampler(logprobs)
    mine = Sampling(1.0, **fields, xtc_probability=probability, xtc_special_tokens=special)
    assert_same_bits(Filters(mine, 0)(logprobs, 0), given_up[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_filtered_the_same_alone_and_in_a_batch(kind: str, dtype: str) -> None:
    rows = [logprobs_of(logits_row(kind, 300, dtype, seed)) for seed in range(5)]
    for options in ALONE.values():
        filters = Filters(Sampling(1.0, **options), seed=1)
        batch = filters(mx.concatenate(rows), 0)
        for row, alone in zip(batch, rows, strict=True):
            assert_same_bits(row[None], filters(alone, 0))


@pytest.mark.parametrize("threshold", [0.0, 0.05, 0.2, 0.5])
def test_xtc_leaves_out_all_but_the_least_likely_above_the_threshold(threshold: float) -> None:
    logprobs = mx.log(mx.array([[0.4, 0.25, 0.2, 0.1, 0.05]]))
    kept = np.isfinite(np.array(exclude_top_choices(logprobs, threshold, ())))[0]
    above = [i for i, share in enumerate([0.4, 0.25, 0.2, 0.1, 0.05]) if share > threshold]
    assert kept.tolist() == [i not in above[:-1] for i in range(5)]


def test_the_xtc_coin_falls_as_often_as_asked_and_knows_nothing_of_the_noise() -> None:
    coins = np.array([keyed_uniform(seed, index) for seed in range(20) for index in range(500)])
    assert coins.min() >= 0
    assert coins.max() < 1
    # 10,000 coins: a share's standard error is at most 0.005; 4 of them.
    for probability in (0.1, 0.5, 0.9):
        assert abs((coins <= probability).mean() - probability) < 0.02
    # Neighbours in index and in seed are independent: a correlation's standard error is 0.01; 4 of them.
    table = coins.reshape(20, 500)
    for one, other in ((table[:, 1:], table[:, :-1]), (table[1:], table[:-1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.04


def test_the_coin_of_a_token_is_the_same_in_every_process() -> None:
    """Literal values: a saved session goes on with the coins it would have had."""
    assert [keyed_uniform(0, 0), keyed_uniform(7, 3)] == [0.27604594104797786, 0.3620729156791642]
