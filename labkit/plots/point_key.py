"""Point key: numbered points with their names and amounts, for pictures where names find no room."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from labkit.plots.amounts import digits, interval
from labkit.plots.marks import Row, link, placed, ratios, text_colour
from labkit.plots.style import SMALL_PT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE_IN = 0.145
_GAP = 0.25
_LINE_CHARACTERS = {1: 48, 2: 60}


def key_height(rows: Sequence[Row], columns: int) -> float:
    """The inches that the longest column of a key takes."""
    return LINE_IN * max(sum(len(lines) + _GAP for _, lines in part) for part in _columns(rows, columns))


def draw_key(axes: Axes, rows: Sequence[Row], columns: int) -> None:
    """A line or two for each point, in its numbers' order, each a link; the axes hold nothing else."""
    axes.set_axis_off()
    height = axes.get_window_extent().height / axes.figure.dpi
    for column, part in enumerate(_columns(rows, columns)):
        line = 0.0
        for row, lines in part:
            text = axes.text(
                column / columns,
                1 - line * LINE_IN / height,
                "\n".join(lines),
                transform=axes.transAxes,
                va="top",
                fontsize=SMALL_PT - 1,
                color=text_colour(row),
                url=link(row),
            )
            text.set_in_layout(False)
            line += len(lines) + _GAP


def amounts(row: Row) -> str:
    """`1.2x speed, 0.97x size, KL 0.0021`; what was not measured is said."""
    if placed(row):
        speed, size = (digits(ratios(row, axis)[0]) for axis in ("speed", "size"))
        parts = [f"{speed}x speed, {size}x size"]
    else:
        parts = [f"no {' and no '.join(row['missing'])}: no place" if row["missing"] else "no place"]
    known = row["quality"] == row["quality"]
    middle = interval(row["quality"], row["quality"], row["quality"], "nats", 2).removesuffix(" nats")
    kl = f"KL {middle}" if known else "no KL"
    return ", ".join([*parts, "the reference" if is_reference(row) else kl])


def quality(row: Row) -> str:
    """`the reference`, or its KL with the interval."""
    if is_reference(row):
        return "the reference"
    kl = interval(row["quality"], row["quality_low"], row["quality_high"], "nats", 2)
    return f"KL {kl}"


def is_reference(row: Row) -> bool:
    """Whether the point is the arm that KL is taken to."""
    return row["arm_hash"] == row["reference_hash"]


def _columns(rows: Sequence[Row], columns: int) -> list[list[tuple[Row, list[str]]]]:
    width = _LINE_CHARACTERS[columns]
    numbered = [(row, _lines(number, row, width)) for number, row in enumerate(rows, 1)]
    tall = -(-len(numbered) // columns)
    return [numbered[i : i + tall] for i in range(0, len(numbered), tall)]


def _lines(number: int, row: Row, width: int) -> list[str]:
    beside = f"; {row['beside_reference']}" if row["beside_reference"] else ""
    text = f"{number:>2}  {row['short_label']}: {amounts(row)}{beside}"
    return textwrap.wrap(text, width, subsequent_indent="     ")
