"""The tables of `labkit frontier`: judged points, trade-offs and what to know before quoting them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Column, Table

from labkit.frontier.advantage import Advantage
from labkit.frontier.axis import Axis, AxisName, margin_text
from labkit.frontier.dominance import Standing
from labkit.frontier.points import Group, Point
from labkit.frontier.tradeoff import TradeOff, trade_offs
from labkit.frontier.versions import Gathered
from labkit.frontier.words import advantage_text
from labkit.plots.amounts import amount, interval

if TYPE_CHECKING:
    from labkit.cli.console import Console

STATUS_ORDER = ("frontier", "dominated", "incomparable")
DIGITS: Mapping[AxisName, int] = {"speed": 3, "quality": 2, "size": 3}
# Among many points most pairs are trade-offs; those with the reference come first.
_TRADES = 6


def print_group(console: Console, group: Group, standings: list[Standing], gathered: Gathered) -> None:
    """A group's points, trade-offs and caveats."""
    console.print(heading(group))
    console.print(_identity(group), markup=False)
    heads = (Column("arm", overflow="fold"), *map(_head, group.axes), Column("standing", overflow="fold"))
    table = Table(*heads, box=SIMPLE_HEAD)
    for standing in sorted(standings, key=lambda s: STATUS_ORDER.index(s.status)):
        point = standing.point
        cells = (_position(point, axis) for axis in group.axes)
        table.add_row(escape(point.short_label), *cells, escape(_standing(standing)))
    console.print(table)
    found = trade_offs(standings)
    for trade in found[:_TRADES]:
        console.print(f"Trade-off: {_trade_off(trade)}", markup=False)
    if len(found) > _TRADES:
        console.print(f"and {len(found) - _TRADES} more trade-offs: --json lists them", markup=False)
    for line in caveats(group, standings, gathered):
        console.print(f"Note: {line}", markup=False)
    console.print()


def heading(group: Group) -> str:
    """Which group it is, as rich markup."""
    return f"[bold]{escape(group.family)}, {group.workload} tokens[/bold] on {escape(group.machine)}"


def _identity(group: Group) -> str:
    """What decides whether another point may stand here, beside the machine and the workload."""
    windows = f"{group.windows} ({group.windows_hash[:8]})" if group.windows_hash else group.windows
    code, packages = ((h or "several")[:8] for h in (group.code_hash, group.packages_hash))
    margins = ", ".join(map(margin_text, group.axes))
    star = "" if all(axis.registered for axis in group.axes) else " (*: the default)"
    return f"{windows}; code {code}, packages {packages}\nmargins: {margins}{star}"


def _head(axis: Axis) -> str:
    return axis.title if axis.unit == "bytes" else f"{axis.title}, {axis.unit}"


def _position(point: Point, axis: Axis) -> str:
    estimate = point.values[axis.name]
    if estimate is None:
        return "not measured"
    text = interval(estimate.value, estimate.low, estimate.high, axis.unit, DIGITS[axis.name])
    return text.removesuffix(f" {axis.unit}").replace(" [", "\n[")


def _standing(standing: Standing) -> str:
    if standing.status == "dominated":
        return "dominated by " + ", ".join(p.short_label for p in standing.dominated_by)
    if standing.status == "incomparable":
        return "incomparable: no " + ", ".join(axis.title for axis in standing.missing)
    return "frontier"


def _trade_off(trade: TradeOff) -> str:
    gains, losses = (
        " and ".join(_change(trade, found) for found in part) for part in (trade.gained(), trade.given_up())
    )
    pair = f"{trade.point.short_label} instead of {trade.other.short_label}"
    return f"{pair} gains {gains} for {losses}."


def _change(trade: TradeOff, found: Advantage) -> str:
    """`decode 0.824x [0.81, 0.84] (14.0 tok/s, not 17.0 tok/s)`; nats stand as they are."""
    axis = found.axis
    much = f" {advantage_text(found)}" if axis.scale == "ratio" else ""
    return f"{axis.title}{much} ({_middle(trade.point, axis)}, not {_middle(trade.other, axis)})"


def _middle(point: Point, axis: Axis) -> str:
    estimate = point.values[axis.name]
    return "" if estimate is None else amount(estimate.value, axis.unit, DIGITS[axis.name])


def caveats(group: Group, standings: list[Standing], gathered: Gathered) -> list[str]:
    """What a reader must know before quoting: noise, and points that different versions have measured."""
    noisy = [s.point.label for s in standings if s.point.quiet is not True]
    lines = [f"measured on a busy machine, not quotable: {', '.join(noisy)}"] if noisy else []
    asked = (group.machine, group.family, group.workload_hash, group.reference_hash)
    if len(noisy) == len(standings) and asked in gathered.hidden_quiet:
        lines.append("older quiet records of other code or packages are hidden: --across-versions")
    return lines + _versions(standings)


def _versions(standings: list[Standing]) -> list[str]:
    found: dict[tuple[str | None, str | None], list[str]] = {}
    for point in (s.point for s in standings):
        found.setdefault((point.code_hash, point.packages_hash), []).append(point.short_label)
    if len(found) < 2:
        return []
    parts = [
        f"code {str(code)[:8]} with packages {str(packages)[:8]}: {', '.join(labels)}"
        for (code, packages), labels in found.items()
    ]
    warning = "versions of code and packages measured these, which alone may explain a difference"
    return [f"{len(found)} {warning}: {'; '.join(parts)}"]
