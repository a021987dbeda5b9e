"""Hypervolume: how much of a space places dominate together, exactly, in one to three dimensions.

The S-metric of Zitzler and Thiele, 1998: of two sets the one that dominates the other has the larger one.
Knows numbers, not what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Place = tuple[float, ...]


def hypervolume(places: Sequence[Place]) -> float:
    """The volume of the union of the boxes from the origin to each place; more is better in every dimension.

    places: of one, two or three coordinates each; one that is not above 0 makes its box empty. Slices along
    the last coordinate: O(n log n) in two dimensions, O(n^2 log n) in three. Raise ValueError for places of
    different or more dimensions.
    """
    dimensions = {len(place) for place in places}
    if len(dimensions) > 1 or dimensions - {1, 2, 3}:
        raise ValueError(f"places of one number of dimensions, 1 to 3, were needed, got {sorted(dimensions)}")
    return _volume([place for place in places if min(place) > 0])


def _volume(places: Sequence[Place]) -> float:
    if not places:
        return 0.0
    if len(places[0]) == 1:
        return max(place[0] for place in places)
    ordered = sorted(places, key=lambda place: -place[-1])
    if len(places[0]) == 2:
        return _area(ordered)
    heights = [place[-1] for place in ordered] + [0.0]
    slabs = enumerate(pairwise(heights), start=1)
    return sum(
        (high - low) * _volume([place[:-1] for place in ordered[:count]])
        for count, (high, low) in slabs
        if high > low
    )


def _area(ordered: Sequence[Place]) -> float:
    """The area of a staircase whose places come with the highest first."""
    total = reached = 0.0
    for across, height in ordered:
        if across > reached:
            total += (across - reached) * height
            reached = across
    return total


def undominated(places: Sequence[Place]) -> list[Place]:
    """The places that no other equals or exceeds in every coordinate; their hypervolume is that of all."""
    kept: list[Place] = []
    for place in sorted(set(places), reverse=True):
        if not any(all(k >= x for k, x in zip(other, place, strict=True)) for other in kept):
            kept.append(place)
    return kept
