"""Taps: what to record of a step beside its tokens, and what was recorded. They change no bit of the step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.core.step import Step


@dataclass(frozen=True, slots=True)
class Taps:
    """What to record. hidden, attention: indices of layers, counted from 0, or one of them.

    call: called with each step after it is committed; what it raises reaches the caller, and the session
    can go on.
    """

    logits: bool = False
    hidden: Sequence[int] = ()
    attention: Sequence[int] = ()
    call: Callable[[Step], None] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", _indices(self.hidden))
        object.__setattr__(self, "attention", _indices(self.attention))

    @property
    def records(self) -> bool:
        """Whether anything of the graph is recorded."""
        return bool(self.logits or self.hidden or self.attention)


def _indices(layers: Any) -> tuple[Any, ...]:
    return tuple(layers) if isinstance(layers, Iterable) and not isinstance(layers, str) else (layers,)


@dataclass(frozen=True, slots=True)
class Tapped:
    """What one step recorded, as evaluated mlx arrays of the `n` tokens that the step fed to the model.

    logits: `(n, vocab)` as the graph gave them, before any processor. hidden: layer -> `(n, hidden)`, the
    output of the layer. attention: layer -> `(heads, n, keys)` probabilities in f32, keys from the oldest
    that the cache holds to the newest.
    """

    logits: Any = None
    hidden: Mapping[int, Any] = field(default_factory=dict)
    attention: Mapping[int, Any] = field(default_factory=dict)
