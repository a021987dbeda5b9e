"""Drawer: from a row's logits to its next token. Knows no caches and no methods."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from labkit.core.errors import SessionFailed
from labkit.core.request import LogitsProcessor, Sampler
from labkit.core.sampling import Sampling
from labkit.engine.filters import Filters
from labkit.engine.processors import Processors, describe_value
from labkit.numerics.gumbel import gumbel_noise

# What a sampler's id outside the vocabulary becomes: mlx does not check the indices it reads with.
NO_TOKEN = -1


class Drawer:
    """How one row draws: `process` its logits, take log-probabilities, `draw`. Made once per run.

    Nothing here waits for an array, and mlx's global generator stays as it was, unless a request's own
    `sampler` draws from it. A sampler takes the place of filters, temperature and noise.
    """

    def __init__(
        self,
        sampling: Sampling,
        seed: int,
        sampler: Sampler | None = None,
        logits_processors: tuple[LogitsProcessor, ...] = (),
    ) -> None:
        self._sampling, self._seed, self._sampler = sampling, seed, sampler
        self._processors = Processors(sampling, logits_processors)
        self._filters = Filters(sampling, seed)
        self.needs_tokens = self._processors.any

    def process(self, logits: mx.array, tokens: mx.array | None = None) -> mx.array:
        """Processed logits `(1, vocab)`; `tokens` `(n,)` is the sequence so far, prompt included.

        tokens may be None where `needs_tokens` is false, since nothing is changed there. The caller's arrays
        keep their values. Raises SessionFailed where a processor gives anything but logits of that shape.
        """
        return logits if tokens is None else self._processors(logits, tokens)

    def draw(self, logprobs: mx.array, index: int) -> mx.array:
        """One token id `()` from `logprobs` `(vocab,)` or `(1, vocab)` in nats, for the token at `index`.

        Greedy is the first argmax, as in mlx-lm. Otherwise the filters, then temperature, then the keyed
        Gumbel-max draw in f32. Raises SessionFailed where a sampler gives anything but one integer.
        """
        if self._sampler is not None:
            return _drawn_by(self._sampler, logprobs.reshape(1, -1))
        if self._sampling.greedy:
            return mx.argmax(logprobs, axis=-1).reshape(())
        filtered = self._filters(logprobs, index)
        scaled = filtered.astype(mx.float32) * (1.0 / self._sampling.temperature)
        noise = gumbel_noise(self._seed, index, logprobs.shape[-1])
        return mx.argmax(scaled + noise, axis=-1).reshape(())

    def committed(self, token: int) -> int:
        """The token as it was read back. Raises SessionFailed where a sampler left the vocabulary."""
        if token == NO_TOKEN:
            need = "a sampler must give a token id of the vocabulary"
            raise SessionFailed(need, got="an id outside of it", next_step="check the request's sampler")
        return token


def draw(logprobs: mx.array, sampling: Sampling, seed: int, index: int) -> mx.array:
    """`Drawer.draw` for a single token: one id `()` from `logprobs` `(vocab,)` or `(1, vocab)`."""
    return Drawer(sampling, seed).draw(logprobs, index)


def _drawn_by(sampler: Sampler, logprobs: mx.array) -> mx.array:
    token: Any = sampler(mx.array(logprobs))
    if not isinstance(token, mx.array) or token.size != 1 or not mx.issubdtype(token.dtype, mx.integer):
        need = "a sampler must return one integer token id, an mx.array of shape (1,)"
        raise SessionFailed(need, got=describe_value(token))
    token = token.reshape(()).astype(mx.int64)
    inside = mx.logical_and(token >= 0, token < logprobs.shape[-1])
    return mx.where(inside, token, NO_TOKEN).astype(mx.int32)
