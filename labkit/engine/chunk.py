"""Chunk: a forward over prompt tokens, evaluated a few layers at a time. Knows no caches and no methods."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from labkit.core.taps import Tapped
from labkit.engine.method import Clock

# A chunk of prefill is evaluated a few layers at a time, about so long, since Ctrl-C waits for that.
PART_S = 0.3
# The parts whose cost is looked at: one alone may have been lucky.
REMEMBERED_PARTS = 3


@dataclass(slots=True)
class Chunk:
    """A forward over `size` prompt tokens. waiting: what is not evaluated yet, one entry a layer."""

    size: int
    waiting: list[Any]
    tapped: Tapped | None


class Pace:
    """How many layers of a chunk are evaluated at once: as many as fit `seconds`, by what the last ones took.

    The dearest of the last parts counts, by layer and token, and the number at most doubles from part to
    part; on a GPU it is soon all of them. learnt: what others of the same graph have seen, and see.
    """

    def __init__(self, learnt: deque[float] | None = None) -> None:
        self.seconds = PART_S
        self.learnt = new_costs() if learnt is None else learnt
        self._layers: int | None = None

    def evaluate(self, chunk: Chunk, layers: int, clock: Clock) -> None:
        """Evaluate the next part of a chunk over so many layers."""
        fitting = int(self.seconds / (chunk.size * max(self.learnt))) if self.learnt else 1
        self._layers = max(1, fitting if self._layers is None else min(fitting, 2 * self._layers))
        # The keys and values of the first layer alone cost little; what they are made of is done with them.
        first = len(chunk.waiting) == layers
        part, started = chunk.waiting[: self._layers], clock()
        mx.eval(part)
        del chunk.waiting[: len(part)]
        if not chunk.waiting:
            mx.eval(arrays_of(chunk.tapped))
        took, done = max(clock() - started, 1e-6), len(part) - first
        if done:
            self.learnt.append(took / done / chunk.size)


def new_costs() -> deque[float]:
    """Seconds of a layer and token, of the last parts."""
    return deque(maxlen=REMEMBERED_PARTS)


def arrays_of(tapped: Tapped | None) -> list[mx.array]:
    """Every array that the taps of a step recorded."""
    if tapped is None:
        return []
    logits = [] if tapped.logits is None else [tapped.logits]
    return [*logits, *tapped.hidden.values(), *tapped.attention.values()]
