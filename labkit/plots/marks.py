"""Marks: what a point's colour and shape say, and the link to its record. The same in every picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labkit.plots.style import BLUE, FADED, GREY, INK, ORANGE

Row = Mapping[Any, Any]

# Each standing has a shape of its own, so that nothing is said by colour alone.
MARKS: Mapping[str, Mapping[str, Any]] = {
    "frontier": {"marker": "o", "color": BLUE, "markerfacecolor": BLUE, "zorder": 4},
    "dominated": {"marker": "s", "color": FADED, "markerfacecolor": "white", "zorder": 3},
    "incomparable": {"marker": "D", "color": ORANGE, "markerfacecolor": "white", "zorder": 3},
}
SAID = "Circle: not dominated. Hollow square: dominated. Hollow diamond: an axis is missing."


def text_colour(row: Row) -> str:
    """That of a point's name."""
    return GREY if row["status"] == "dominated" else INK


def link(row: Row) -> str | None:
    """Where a click on the point leads: the frame's column `link`, where it has one."""
    found = row.get("link")
    return found if isinstance(found, str) and found else None


def placed(row: Row) -> bool:
    """Whether speed and size of both the point and the origin are known."""
    places = (row["speed"], row["size"], row["speed_origin"], row["size_origin"])
    # NaN is above nothing.
    return all(value > 0 for value in places)


def ratios(row: Row, axis: str) -> tuple[float, float, float]:
    """Value, low and high end as ratios to the origin; an end that reaches zero stays just above it."""
    origin = row[f"{axis}_origin"]
    value, low, high = (max(row[f"{axis}{end}"] / origin, 1e-9) for end in ("", "_low", "_high"))
    return value, low, high
