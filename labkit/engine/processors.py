"""Processors: from the logits of a graph to those drawn from. Knows no filters, caches or methods."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from labkit.core.errors import SessionFailed
from labkit.core.request import LogitsProcessor
from labkit.core.sampling import Sampling


class Processors:
    """What `sampling` does to the logits, in mlx-lm's order, then a request's own. Made once per run.

    The arithmetic is mlx-lm's (`mlx_lm.sample_utils.make_logits_processors`), so it is equal bit for bit.
    """

    def __init__(self, sampling: Sampling, extra: tuple[LogitsProcessor, ...] = ()) -> None:
        self._own = _from_mlx_lm(sampling) if sampling.processes else ()
        self._extra = extra

    @property
    def any(self) -> bool:
        return bool(self._own or self._extra)

    def __call__(self, logits: mx.array, tokens: mx.array) -> mx.array:
        """Processed logits `(1, vocab)` of the sequence `tokens` `(n,)`, prompt included.

        The caller's arrays keep their values. Raises SessionFailed where a processor gives anything but
        logits of the same shape.
        """
        for processor in (*self._own, *self._extra):
            # A new handle: mlx-lm's processors assign into the array they are given.
            processed: Any = processor(mx.array(tokens), mx.array(logits))
            if not _are_logits(processed, logits.shape):
                raise _misshapen(processor, processed, logits)
            logits = processed
        return logits


def describe_value(value: Any) -> str:
    """What a callable returned, for a message: dtype and shape of an array, the type of anything else."""
    if not isinstance(value, mx.array):
        return type(value).__name__
    return f"{str(value.dtype).rpartition('.')[2]} of shape {value.shape}"


def _from_mlx_lm(sampling: Sampling) -> tuple[LogitsProcessor, ...]:
    from mlx_lm.sample_utils import make_logits_processors

    divisor = sampling.repetition_penalty
    return tuple(
        make_logits_processors(
            logit_bias=dict(sampling.logit_bias),
            # mlx-lm's own way to say none is 0; a 1 would cost time and change no bit.
            repetition_penalty=None if divisor == 1.0 else divisor,
            repetition_context_size=sampling.repetition_context_size,
            presence_penalty=sampling.presence_penalty,
            presence_context_size=sampling.presence_context_size,
            frequency_penalty=sampling.frequency_penalty,
            frequency_context_size=sampling.frequency_context_size,
        )
    )


def _are_logits(value: Any, shape: tuple[int, ...]) -> bool:
    return isinstance(value, mx.array) and value.shape == shape and mx.issubdtype(value.dtype, mx.floating)


def _misshapen(processor: LogitsProcessor, processed: Any, logits: mx.array) -> SessionFailed:
    name = getattr(processor, "__qualname__", type(processor).__qualname__)
    need = f"the logits processor {name} must return logits of shape {logits.shape}"
    next_step = "return the logits, also where they were changed in place"
    return SessionFailed(need, got=describe_value(processed), next_step=next_step)
