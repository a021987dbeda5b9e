"""Gap: how long a unit of prefill may take while rows decode, by what their steps took. Knows seconds."""

from __future__ import annotations

import statistics
from collections import deque

# While rows decode, a unit of prefill and the step after it together take about this many undisturbed steps,
# so that the slowest of them stay below three.
GAP_STEPS = 2.4
# The least of a step that such a unit gets, so that a prompt is read at all; and seconds of an untimed step.
LEAST_STEPS, UNTIMED_S = 0.3, 0.05
# Steps that the time of one is the median of: undisturbed ones, and those after a unit of prefill.
TIMED = 16


class Gap:
    """Remembers the last decode steps of each sort."""

    def __init__(self) -> None:
        self._undisturbed: deque[float] = deque(maxlen=TIMED)
        self._after_prefill: deque[float] = deque(maxlen=TIMED)

    def note(self, seconds: float, *, after_prefill: bool) -> None:
        """Remember a decode step; what was waited for of it before a unit of prefill is part of it."""
        (self._after_prefill if after_prefill else self._undisturbed).append(seconds)

    def part_s(self) -> float:
        """Seconds for a unit of prefill between two decode steps.

        What of a step runs beside the unit, on a GPU nearly all of it, is not counted twice.
        """
        step = statistics.median(self._undisturbed) if self._undisturbed else UNTIMED_S
        after = statistics.median(self._after_prefill) if self._after_prefill else step
        return max(GAP_STEPS * step - after, LEAST_STEPS * step)
