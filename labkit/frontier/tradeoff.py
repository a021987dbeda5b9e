"""Trade-offs: pairs of points on one frontier where each is wholly better than the other somewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from labkit.frontier.advantage import Advantage, advantage
from labkit.frontier.axis import Axis
from labkit.frontier.dominance import Standing, better_axes
from labkit.frontier.points import Point


@dataclass(frozen=True, slots=True)
class TradeOff:
    """What `point` gains over `other`, and what it gives up for it: axes beyond their margins."""

    point: Point
    other: Point
    gains: tuple[Axis, ...]
    gives_up: tuple[Axis, ...]

    def gained(self) -> tuple[Advantage, ...]:
        """How much it gains, with intervals."""
        return _changes(self.point, self.other, self.gains)

    def given_up(self) -> tuple[Advantage, ...]:
        """How much it loses, as improvements below 1, or below 0 on an absolute axis."""
        return _changes(self.point, self.other, self.gives_up)


def trade_offs(standings: Sequence[Standing]) -> tuple[TradeOff, ...]:
    """Every trade-off among the frontier's points: those with the reference first, and it always `other`."""
    found = []
    for a, b in combinations([s.point for s in standings if s.status == "frontier"], 2):
        if a.group != b.group:
            continue
        point, other = (b, a) if a.arm_hash == a.group.reference_hash else (a, b)
        gains, gives_up = better_axes(point, other), better_axes(other, point)
        if gains and gives_up:
            found.append(TradeOff(point, other, gains, gives_up))
    return tuple(sorted(found, key=lambda t: t.other.arm_hash != t.other.group.reference_hash))


def _changes(point: Point, other: Point, axes: Iterable[Axis]) -> tuple[Advantage, ...]:
    found = (advantage(point, other, axis) for axis in axes)
    return tuple(x for x in found if x is not None)
