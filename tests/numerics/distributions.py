"""Random rows of logits of every kind that sampling meets, and what mlx-lm makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import mlx.core as mx
import numpy as np
from mlx_lm import sample_utils

from labkit.core.sampling import Sampling
from labkit.numerics.gumbel import keyed_uniform

DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}


def _banned(source: np.random.Generator, size: int) -> np.ndarray:
    row = source.normal(size=size)
    row[source.permutation(size)[: size // 2]] = -np.inf
    return row


KINDS: Mapping[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "random": lambda source, size: source.normal(scale=3.0, size=size),
    "peaked": lambda source, size: source.normal(size=size) + 25.0 * (np.arange(size) == size // 2),
    "flat": lambda _, size: np.zeros(size),
    "tied": lambda source, size: source.integers(-2, 3, size=size).astype(float),
    "banned": _banned,
    "steep": lambda source, size: -np.abs(source.normal(scale=200.0, size=size)),
}


def logits_row(kind: str, size: int, dtype: str, seed: int = 0) -> mx.array:
    """Logits `(1, size)`."""
    return mx.array(KINDS[kind](np.random.default_rng(seed), size)).astype(DTYPES[dtype])[None]


def logprobs_of(logits: mx.array) -> mx.array:
    """Log-probabilities as `generate_step` makes them."""
    return logits - mx.logsumexp(logits, keepdims=True)


def filtered_by_mlx_lm(logprobs: mx.array, sampling: Sampling, seed: int, index: int) -> mx.array:
    """mlx-lm's own filters, one after the other, with the keyed coin in place of its XTC coin."""
    if 0 < sampling.top_p < 1:
        logprobs = sample_utils.apply_top_p(logprobs, sampling.top_p)
    if sampling.min_p != 0:
        logprobs = sample_utils.apply_min_p(logprobs, sampling.min_p, sampling.min_tokens_to_keep)
    if sampling.xtc_probability > 0 and keyed_uniform(seed, index) <= sampling.xtc_probability:
        special = list(sampling.xtc_special_tokens)
        logprobs = sample_utils.apply_xtc(logprobs, 1.0, sampling.xtc_threshold, special)
    return sample_utils.apply_top_k(logprobs, sampling.top_k) if sampling.top_k > 0 else logprobs


def assert_same_bits(found: mx.array, expected: mx.array) -> None:
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert mx.array_equal(found, expected, equal_nan=True), f"{found} is not {expected}"
