"""Processors against mlx-lm's own, bit for bit; and what a request's own may do."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.sample_utils import make_logits_processors

from labkit.core.errors import SessionFailed
from labkit.core.sampling import Sampling
from labkit.engine.sampling import Drawer
from tests.numerics.distributions import DTYPES, KINDS, assert_same_bits, logits_row

ALONE: dict[str, dict[str, Any]] = {
    "bias": {"logit_bias": {3: 1.5, 0: -10_000.0, 2: 0.1}},
    "repetition": {"repetition_penalty": 1.3},
    "reward": {"repetition_penalty": 0.7, "repetition_context_size": 2},
    "presence": {"presence_penalty": 0.77, "presence_context_size": 4},
    "frequency": {"frequency_penalty": 0.31, "frequency_context_size": 50},
}
TOKENS = [3, 1, 1, 2, 3, 3, 1, 0]


def processed_by_mlx_lm(logits: mx.array, tokens: list[int], sampling: Sampling) -> mx.array:
    processors = make_logits_processors(
        logit_bias=dict(sampling.logit_bias),
        repetition_penalty=sampling.repetition_penalty,
        repetition_context_size=sampling.repetition_context_size,
        presence_penalty=sampling.presence_penalty,
        presence_context_size=sampling.presence_context_size,
        frequency_penalty=sampling.frequency_penalty,
        frequency_context_size=sampling.frequency_context_size,
    )
    logits = mx.array(logits)
    for processor in processors:
        logits = processor(mx.array(tokens), logits)
    return logits


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_each_processor_alone_is_mlx_lms(kind: str, dtype: str, name: str) -> None:
    sampling = Sampling(**ALONE[name])
    for size in (4, 17, 5000):
        logits = logits_row(kind, size, dtype, seed=size)
        before = mx.array(logits)
        found = Drawer(sampling, 0).process(logits, mx.array(TOKENS))
        assert_same_bits(found, processed_by_mlx_lm(before, TOKENS, sampling))
        assert_same_bits(logits, before)


@pytest.mark.parametrize("name", ALONE)
def test_each_processor_does_something(name: str) -> None:
    logits = logits_row("random", 17, "float32")
    assert not mx.array_equal(Drawer(Sampling(**ALONE[name]), 0).process(logits, mx.array(TOKENS)), logits)


VOCABULARY = 40
penalties = st.floats(-3, 3).filter(lambda x: x != 0)
contexts = st.integers(1, 30)


@settings(max_examples=150, deadline=None)
@given(
    st.builds(
        Sampling,
        logit_bias=st.dictionaries(st.integers(0, VOCABULARY - 1), st.floats(-50, 50), max_size=5),
        repetition_penalty=st.floats(0.5, 3),
        repetition_context_size=contexts,
        presence_penalty=penalties,
        presence_context_size=contexts,
        frequency_penalty=penalties,
        frequency_context_size=contexts,
    ),
    st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=25),
    st.sampled_from(list(KINDS)),
    st.sampled_from(list(DTYPES)),
)
def test_processors_combined_are_mlx_lms_chain(
    sampling: Sampling, tokens: list[int], kind: str, dtype: str
) -> None:
    logits = logits_row(kind, VOCABULARY, dtype, seed=len(tokens))
    found = Drawer(sampling, 0).process(logits, mx.array(tokens))
    assert_same_bits(found, processed_by_mlx_lm(logits, tokens, sampling))


def test_without_processors_the_logits_are_the_very_same_array() -> None:
    logits = logits_row("random", 10, "float32")
    drawer = Drawer(Sampling(0.7, 0.9), 0)
    assert not drawer.needs_tokens
    assert drawer.process(logits) is logits


def test_a_requests_own_processors_come_after_those_of_sampling() -> None:
    def double(_: mx.array, logits: mx.array) -> mx.array:
        return logits * 2

    def add_one(_: mx.array, logits: mx.array) -> mx.array:
        return logits + 1

    drawer = Drawer(Sampling(logit_bias={0: 4.0}), 0, None, (double, add_one))
    found = drawer.process(mx.array([[1.0, 2.0]]), mx.array([1]))
    assert found.tolist() == [[11.0, 5.0]]


def test_a_processor_that_writes_in_place_changes_nothing_of_the_callers() -> None:
    def vandal(tokens: mx.array, logits: mx.array) -> mx.array:
        tokens[:] = 0
        logits[:, 0] = 9.0
        return logits

    logits, tokens = mx.array([[1.0, 2.0]]), mx.array([1, 1])
    seen: list[Any] = []

    def witness(tokens: mx.array, logits: mx.array) -> mx.array:
        seen.append(tokens.tolist())
        return logits

    found = Drawer(Sampling(), 0, None, (vandal, witness)).process(logits, tokens)
    assert found.tolist() == [[9.0, 2.0]]
    assert (logits.tolist(), tokens.tolist(), seen) == ([[1.0, 2.0]], [1, 1], [[1, 1]])


@pytest.mark.parametrize(
    ("given", "got"),
    [
        (None, "got:     NoneType"),
        ([[1.0, 2.0]], "got:     list"),
        (mx.array([1.0, 2.0]), "got:     float32 of shape (2,)"),
        (mx.array([[1.0]]), "got:     float32 of shape (1, 1)"),
        (mx.array([[1, 2]]), "got:     int32 of shape (1, 2)"),
    ],
)
def test_a_processor_that_returns_no_logits_is_named(given: Any, got: str) -> None:
    def broken(tokens: mx.array, logits: mx.array) -> Any:
        return given

    with pytest.raises(SessionFailed, match=r"logits processor .*broken must return") as caught:
        Drawer(Sampling(), 0, None, (broken,)).process(mx.array([[1.0, 2.0]]), mx.array([1]))
    assert got in str(caught.value)
