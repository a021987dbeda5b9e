"""The name of a method, with the number that some take: `autoregressive`, `slowed:0.10`."""

from __future__ import annotations

import math


def parse_method(name: str) -> tuple[str, float | None]:
    """The method's own name and its number, None without one. Raise ValueError where it is not finite."""
    method, colon, argument = name.partition(":")
    if not colon:
        return method, None
    number = float(argument)
    if not math.isfinite(number):
        raise ValueError(f"a finite number was needed, got {argument}")
    return method, number
