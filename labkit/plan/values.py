"""Values: which Python values count as numbers, counts and token ids, for the planner's checks."""

from __future__ import annotations

import math
from typing import TypeGuard

# No message repeats more of a value than that.
_SHOWN = 80


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is an int; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether it is a finite int or float within the range of a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_count(value: object) -> bool:
    """Whether it is a whole number of at least 1."""
    return is_whole(value) and value >= 1


def is_token(value: object, vocab_size: int) -> bool:
    """Whether it is a token id of a vocabulary of this size."""
    return is_whole(value) and 0 <= value < vocab_size


def shown(value: object) -> str:
    """A value as a message repeats it; long ones end in dots."""
    try:
        text = repr(value)
    except ValueError:
        return f"{type(value).__name__} too long to show"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
