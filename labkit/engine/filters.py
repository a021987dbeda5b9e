"""Filters: which tokens of a distribution can be drawn at all. Knows no processors, noise or methods."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from labkit.core.sampling import Sampling
from labkit.numerics.gumbel import keyed_uniform


class Filters:
    """top-p, min-p, XTC and top-k of `sampling` in mlx-lm's order. Made once per run.

    All but XTC are mlx-lm's own functions. XTC draws its coin from (seed, index), where mlx-lm's draws it
    from the global generator; what it masks is the same.
    """

    def __init__(self, sampling: Sampling, seed: int) -> None:
        self._sampling, self._seed = sampling, seed

    def __call__(self, logprobs: mx.array, index: int) -> mx.array:
        """Log-probabilities `(..., vocab)` for the token at `index`, those filtered out at -inf."""
        from mlx_lm.sample_utils import apply_min_p, apply_top_k, apply_top_p

        sampling = self._sampling
        if sampling.top_p < 1:
            logprobs = apply_top_p(logprobs, sampling.top_p)
        if sampling.min_p > 0:
            logprobs = apply_min_p(logprobs, sampling.min_p, sampling.min_tokens_to_keep)
        if self._excludes(index):
            logprobs = exclude_top_choices(logprobs, sampling.xtc_threshold, sampling.xtc_special_tokens)
        if sampling.top_k > 0:
            logprobs = apply_top_k(logprobs, sampling.top_k)
        return logprobs

    def _excludes(self, index: int) -> bool:
        probability = self._sampling.xtc_probability
        return probability > 0 and keyed_uniform(self._seed, index) <= probability


def exclude_top_choices(logprobs: mx.array, threshold: float, special_tokens: Sequence[int]) -> mx.array:
    """XTC: `(..., vocab)` with every token above `threshold` at -inf but the least likely of them.

    special_tokens are never left out. The masking of `mlx_lm.sample_utils.apply_xtc`, without its coin.
    """
    probs = mx.softmax(logprobs, axis=-1)
    least = mx.where(probs > threshold, probs, mx.inf).min(axis=-1, keepdims=True)
    excluded = probs > least
    if special_tokens:
        excluded[..., mx.array(list(special_tokens))] = False
    return mx.where(excluded, -mx.inf, logprobs)
