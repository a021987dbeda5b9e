"""The tables of `labkit frontier --buys`, `--within` and `--over-time`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Column, Table

from labkit.cli.frontier_table import heading
from labkit.core.records import Estimate
from labkit.frontier.dominance import Standing
from labkit.frontier.growth import CORNER, Moment
from labkit.frontier.marginal import Gain, Upgrade, Within, incomparable
from labkit.frontier.points import Point
from labkit.plots.amounts import amount

if TYPE_CHECKING:
    from labkit.cli.console import Console

_PRICE = "a price is that of the whole step; between and beyond its ends nothing was measured."


def print_upgrades(
    console: Console, standings: Sequence[Standing], steps: Sequence[Upgrade], unit: float
) -> None:
    """A table per group: every step along the frontier, what it takes and what it gives."""
    for group in dict.fromkeys(s.point.group for s in standings):
        console.print(heading(group))
        members = [s for s in standings if s.point.group == group]
        mine = [step for step in steps if step.larger.group == group]
        if mine:
            console.print(_steps(mine, unit))
        else:
            empty = not any(s.status == "frontier" for s in members)
            console.print(f"No step: the frontier has {'no point' if empty else 'one point alone'}.")
        _print_lacking(console, incomparable(members))
        console.print()
    if steps:
        console.print(f"Note: {_PRICE}", markup=False)


def print_within(console: Console, shown: Sequence[Within]) -> None:
    """What fits the budget in each group, and what more would add."""
    for each in shown:
        console.print(heading(each.group))
        nothing = "nothing that can be judged" if each.incomparable else "nothing that was measured"
        best = "; ".join(map(_named, each.best)) or nothing
        console.print(f"Within {_bytes(each.budget)}: {best}.", markup=False)
        _print_lacking(console, each.incomparable)
        if each.upgrades:
            console.print(f"The next {_bytes(each.more)} would buy:")
            console.print(_steps(each.upgrades, each.more))
        else:
            console.print(_nothing(each), markup=False)
            console.print()
    if any(each.upgrades for each in shown):
        console.print(f"Note: {_PRICE}", markup=False)


def print_moments(console: Console, found: Sequence[Moment]) -> None:
    """The hypervolume of each group after every record, and where the code or the packages changed."""
    for group in dict.fromkeys(moment.group for moment in found):
        mine = [moment for moment in found if moment.group == group]
        console.print(heading(group))
        spanned = " x ".join(mine[0].dimensions)
        console.print(f"hypervolume in {spanned}; {group.reference} alone is 1", markup=False)
        console.print(f"measured from {_corner(mine[0])}", markup=False)
        heads = ("record", "hypervolume", "moved by")
        table = Table(*(Column(head, overflow="fold") for head in heads), box=SIMPLE_HEAD)
        for moment in mine:
            table.add_row(_when(moment), _volume(moment), escape(", ".join(moment.grew)))
        console.print(table)


def _print_lacking(console: Console, lacking: Sequence[Standing]) -> None:
    """What cannot be judged, with the axes that nobody measured of it."""
    if lacking:
        each = "; ".join(f"{_named(s.point)} has no {', '.join(a.title for a in s.missing)}" for s in lacking)
        console.print(f"Not judged: {each}.", markup=False)


def _steps(steps: Sequence[Upgrade], unit: float) -> Table:
    price = f"per {_bytes(unit)}"
    heads = ("from", "to", "extra", "buys", price)
    table = Table(*(Column(head, overflow="fold") for head in heads), box=SIMPLE_HEAD)
    for step in steps:
        table.add_row(
            *(escape(point.short_label) for point in (step.smaller, step.larger)),
            _bytes(step.extra.value) if step.extra.value else "none",
            "\n".join(_total(gain) for gain in step.gains) or "not measured",
            "\n".join(_price(gain) for gain in step.gains),
        )
    return table


def _total(gain: Gain) -> str:
    """`decode +2.18 tok/s [+0.83, +3.24]`; what is within the margin says so."""
    title = gain.axis.title if gain.axis.name == "speed" else "KL"
    # A KL is told as it moves: to fall is to gain.
    moved = gain.total if gain.axis.better == "higher" else _negated(gain.total)
    within = ", within the margin" if gain.word == "same" else ""
    return f"{title} {_signed(moved)}{within}"


def _price(gain: Gain) -> str:
    if gain.per is None:
        return "no more bytes"
    return _signed(gain.per if gain.axis.better == "higher" else _negated(gain.per))


def _signed(found: Estimate) -> str:
    middle, low, high = (f"{value:+.2g}" for value in (found.value, found.low, found.high))
    inner = "" if low == high else f" [{low}, {high}]"
    return f"{middle}{inner} {found.unit}"


def _negated(found: Estimate) -> Estimate:
    return Estimate(-found.value, -found.high, -found.low, found.n, found.unit)


def _nothing(found: Within) -> str:
    more = f"The next {_bytes(found.more)} buy"
    if found.unlocked:
        return f"{more} the first that fits: {'; '.join(map(_named, found.unlocked))}."
    if found.beyond is None:
        return f"{more} nothing: no point of the frontier is larger."
    return f"{more} nothing: the next point of the frontier is {_named(found.beyond)}."


def _named(point: Point) -> str:
    size = point.values["size"]
    return point.short_label if size is None else f"{point.short_label} ({_bytes(size.value)})"


def _bytes(count: float) -> str:
    return amount(count, "bytes")


def _corner(moment: Moment) -> str:
    """`0.25x speed, 1 nats, 4x size`."""
    units = {"quality": " nats"}
    return ", ".join(f"{CORNER[a]:g}{units.get(a, f'x {a}')}" for a in moment.dimensions)


def _when(moment: Moment) -> str:
    at = datetime.fromisoformat(moment.started_at)
    changed = f"\nother {' and '.join(moment.changed)}" if moment.changed else ""
    return f"{at:%Y-%m-%d %H:%M}\n{escape(moment.experiment)}{changed}"


def _volume(moment: Moment) -> str:
    return f"{moment.volume:.3f}\n[{moment.low:.3f}, {moment.high:.3f}]"
