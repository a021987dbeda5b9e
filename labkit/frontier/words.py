"""Words: how one point compares with another, in a phrase for a picture, a table or a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from labkit.frontier.advantage import Advantage
from labkit.frontier.axis import Axis, AxisName
from labkit.frontier.dominance import better_axes
from labkit.frontier.points import Point
from labkit.frontier.tradeoff import TradeOff

_WORDS: Mapping[AxisName, tuple[str, str]] = {
    "speed": ("faster", "slower"),
    "quality": ("a lower KL", "a higher KL"),
    "size": ("smaller", "larger"),
}


def beside(point: Point, other: Point) -> str:
    """What differs beyond the margins: `trade-off: smaller for slower`, `faster` or `no different`."""
    better, worse = better_axes(point, other), better_axes(other, point)
    gains, losses = _listed(better, 0), _listed(worse, 1)
    if gains and losses:
        return f"trade-off: {gains} for {losses}"
    return gains or losses or "no different"


def phrase(trade: TradeOff) -> str:
    """`size 1.03x for speed 0.885x [0.833, 0.955] against kv=f32`: improvements, so below 1x is a loss."""
    gains, losses = (
        " and ".join(f"{a.axis.name} {advantage_text(a)}" for a in part)
        for part in (trade.gained(), trade.given_up())
    )
    return f"{gains} for {losses} against {trade.other.short_label}"


def advantage_text(found: Advantage) -> str:
    """`1.12x [1.05, 1.20]` or `-0.0021 [-0.0025, -0.0017] nats`; an exact one stands alone."""
    middle, low, high = (_number(v, found.axis) for v in (found.value, found.low, found.high))
    inner = "" if low == high else f" [{low}, {high}]"
    return f"{middle}x{inner}" if found.axis.scale == "ratio" else f"{middle}{inner} {found.axis.unit}"


def _number(value: float, axis: Axis) -> str:
    return f"{value:.3g}" if axis.scale == "ratio" else f"{value:+.2g}"


def _listed(axes: Iterable[Axis], which: int) -> str:
    return " and ".join(_WORDS[axis.name][which] for axis in axes)
