"""Amounts: how a value, an interval or a ratio reads to a person. Loads no matplotlib."""

from __future__ import annotations

import math

# Below this a KL is the rounding of another order of summation, and its digits tell nothing.
_NATS_FLOOR = 1e-5
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


def byte_scale(largest: float) -> tuple[float, str]:
    """The decimal unit, as (bytes per unit, name), in which the largest of some byte counts reads well."""
    return next(((size, name) for size, name in _BYTES if largest >= size), _BYTES[-1])


def digits(value: float, significant: int = 3) -> str:
    """A number at `significant` digits without an exponent, except where it would start with many zeros."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "-"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude < -4:
        return f"{value:.{significant - 1}e}"
    return f"{value:,.{max(0, significant - 1 - magnitude)}f}"


def amount(value: float, unit: str, significant: int = 3) -> str:
    """A value with its unit; bytes take a decimal prefix."""
    size, name = byte_scale(abs(value)) if unit == "bytes" else (1.0, unit)
    return f"{digits(value / size, significant)} {name}"


def interval(value: float, low: float, high: float, unit: str, significant: int = 3) -> str:
    """`17.0 [16.6, 17.4] tok/s`; an exact value stands alone, an unmeasured one (NaN) is `not measured`.

    An interval that its digits do not show is left out; nats wholly below 1e-5 read `below 1e-5 nats`.
    """
    if math.isnan(value):
        return "not measured"
    if unit == "nats" and 0 < max(abs(low), abs(high)) < _NATS_FLOOR:
        return f"below {_NATS_FLOOR:.0e} nats".replace("e-0", "e-")
    size, name = byte_scale(abs(value)) if unit == "bytes" else (1.0, unit)
    middle, *ends = (digits(x / size, significant) for x in (value, low, high))
    inner = "" if ends[0] == ends[1] else f" [{', '.join(ends)}]"
    return f"{middle}{inner} {name}"


def ratio_interval(value: float, low: float, high: float) -> str:
    """`0.823x [0.811, 1.015]`, to a thousandth near 1 as verdicts are; an interval that does not show is left
    out."""
    middle, *ends = (digits(x, 4 if 1 <= x < 10 else 3) for x in (value, low, high))
    return f"{digits(value)}x" if ends[0] == ends[1] else f"{middle}x [{', '.join(ends)}]"
