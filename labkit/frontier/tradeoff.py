"""Trade-offs: pairs of points on one frontier where each is wholly better than the other somewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from labkit.frontier.dominance import Standing, better_axes
from labkit.frontier.points import Axis, Point


@dataclass(frozen=True, slots=True)
class TradeOff:
    """What `point` gains over `other`, and what it gives up for it."""

    point: Point
    other: Point
    gains: tuple[Axis, ...]
    gives_up: tuple[Axis, ...]


def trade_offs(standings: Sequence[Standing]) -> tuple[TradeOff, ...]:
    """Every trade-off among the frontier's points, the reference arm always as `other`."""
    found = []
    for a, b in combinations([s.point for s in standings if s.status == "frontier"], 2):
        if a.group != b.group:
            continue
        point, other = (b, a) if a.arm_hash == a.group.reference_hash else (a, b)
        gains, gives_up = better_axes(point, other), better_axes(other, point)
        if gains and gives_up:
            found.append(TradeOff(point, other, gains, gives_up))
    return tuple(found)
