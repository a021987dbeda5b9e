"""From log-probabilities to a token, per row. Knows no caches and no methods."""

from __future__ import annotations

import mlx.core as mx

from labkit.core.sampling import Sampling
from labkit.numerics.gumbel import gumbel_noise


def draw(logprobs: mx.array, sampling: Sampling, seed: int, index: int) -> mx.array:
    """Draw one token id `()` from `logprobs` `(vocab,)` in nats for the token at `index`.

    Greedy is the first argmax, as in mlx-lm. Otherwise mlx-lm's top-p filter (at temperature 1, its order),
    then temperature, then the keyed Gumbel-max draw in f32.
    """
    if sampling.greedy:
        return mx.argmax(logprobs, axis=-1)
    if sampling.top_p < 1:
        from mlx_lm.sample_utils import apply_top_p

        logprobs = apply_top_p(logprobs, sampling.top_p)
    scaled = logprobs.astype(mx.float32) * (1.0 / sampling.temperature)
    return mx.argmax(scaled + gumbel_noise(seed, index, logprobs.shape[-1]), axis=-1)
