"""Alternatives: the likeliest tokens, sorted, with ties by the lower id."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.engine.alternatives import alternatives, read_alternatives
from tests.numerics.distributions import DTYPES, KINDS, logits_row, logprobs_of


def sorted_by_numpy(logprobs: mx.array, k: int) -> list[tuple[int, float]]:
    row = np.array(logprobs.astype(mx.float32)).reshape(-1)
    order = np.lexsort((np.arange(row.size), -row))[:k]
    return [(int(i), float(row[i])) for i in order]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_they_are_what_a_full_sort_gives(kind: str, dtype: str) -> None:
    for size in (1, 2, 17, 300, 5000):
        logprobs = logprobs_of(logits_row(kind, size, dtype, seed=size))
        for k in sorted({1, min(5, size), min(size, 300)}):
            found = read_alternatives(0, alternatives(logprobs, mx.array(0), k))
            assert list(found.top) == sorted_by_numpy(logprobs, k)


floats = st.one_of(
    st.sampled_from([0.0, -0.0, -1.0, -math.inf]),
    st.floats(-1e6, 32, width=32, allow_subnormal=False),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(floats, min_size=1, max_size=40), st.data())
def test_ties_and_extremes_are_ordered_by_value_then_id(values: list[float], data: st.DataObject) -> None:
    row = mx.array(values, dtype=mx.float32)
    k = data.draw(st.integers(1, len(values)))
    found = read_alternatives(0, alternatives(row, mx.array(0), k)).top
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))[:k]
    assert [token for token, _ in found] == order
    assert [value for _, value in found] == np.array(values, np.float32)[order].tolist()


def test_the_token_is_given_its_own_logprob_inside_and_outside_of_the_top() -> None:
    logprobs = mx.log(mx.array([[0.5, 0.1, 0.3, 0.1]]))
    for token in range(4):
        found = read_alternatives(token, alternatives(logprobs, mx.array(token), 2))
        assert found.token == token
        assert found.logprob == logprobs[0, token].item()
        assert [i for i, _ in found.top] == [0, 2]
        assert (type(found.logprob), type(found.top[0][0]), type(found.top[0][1])) == (float, int, float)
