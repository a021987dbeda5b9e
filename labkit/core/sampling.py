"""Sampling: how a token is drawn from the logits, as data. Validation is the planner's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

# Every whole number up to it is a float too.
_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class Sampling:
    """Processors of the logits, then filters of the distribution, then a draw. The defaults are greedy.

    The names, the meaning and the order are mlx-lm's (`mlx_lm.sample_utils`): logit bias, repetition,
    presence and frequency penalty on the logits; top-p, min-p, XTC and top-k on the log-probabilities at
    temperature 1; then the draw at `temperature`. Processors act on a greedy draw too, filters do not.

    temperature: 0 is greedy. top_k: 0 keeps all. top_p: 1 keeps all. min_p: a share of the largest
    probability, 0 keeps all; `min_tokens_to_keep` survive it. xtc_probability: of leaving out, at a step,
    every token above `xtc_threshold` but the least likely of them, and never `xtc_special_tokens`.
    repetition_penalty: a divisor of positive logits and a factor of negative ones, 1 is none (Keskar et al.
    2019, arXiv 1909.05858). presence_penalty, frequency_penalty: nats taken off once, or per occurrence.
    The context sizes are the last tokens looked at, prompt included.
    logit_bias: token id -> nats added; given as a mapping or pairs, kept as sorted pairs.
    Numbers of array libraries are kept as Python's own, and whole numbers as floats where a float belongs.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    min_tokens_to_keep: int = 1
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    xtc_special_tokens: Sequence[int] = ()
    repetition_penalty: float = 1.0
    repetition_context_size: int = 20
    presence_penalty: float = 0.0
    presence_context_size: int = 20
    frequency_penalty: float = 0.0
    frequency_context_size: int = 20
    logit_bias: Mapping[int, float] | Sequence[tuple[int, float]] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            value = _plain_number(getattr(self, field.name))
            # A float's field holds floats, so that equal settings have equal hashes.
            object.__setattr__(self, field.name, _as_float(value) if field.type == "float" else value)
        object.__setattr__(self, "logit_bias", _sorted_pairs(self.logit_bias))
        object.__setattr__(self, "xtc_special_tokens", _numbers(self.xtc_special_tokens))

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def processes(self) -> bool:
        """Whether the logits are changed before the draw."""
        penalties = (
            self.repetition_penalty != 1.0,
            self.presence_penalty != 0.0,
            self.frequency_penalty != 0.0,
        )
        return any(penalties) or bool(self.logit_bias)


def _plain_number(value: Any) -> Any:
    """An array library's number as Python's own; anything else as it is, for the planner to judge."""
    return value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value


def _as_float(value: Any) -> Any:
    """A whole number as the float that equals it; anything else as it is."""
    return float(value) if type(value) is int and abs(value) <= _EXACT else value


def _numbers(values: Any) -> Any:
    """A sequence of numbers as a tuple; what is none as it is."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        return values
    return tuple(_plain_number(value) for value in values)


def _sorted_pairs(bias: Any) -> Any:
    """Pairs of id and nats, sorted; what is neither a mapping nor pairs as it is."""
    pairs = _numbers(bias.items() if isinstance(bias, Mapping) else bias)
    if not isinstance(pairs, tuple) or not all(isinstance(p, tuple | list) and len(p) == 2 for p in pairs):
        return pairs
    numbers = [(_plain_number(token), _as_float(_plain_number(nats))) for token, nats in pairs]
    try:
        return tuple(sorted(numbers))
    except TypeError:
        return tuple(numbers)
