"""`labkit frontier`: what is not dominated, what is and by whom, the trade-offs, and the picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from labkit.cli.damage import tell_damaged
from labkit.cli.root import Root
from labkit.core.errors import NoRecords
from labkit.frontier.dominance import Standing, judge
from labkit.frontier.points import Axis, AxisName, Group, Point, points, short_label
from labkit.frontier.table import standing_frame
from labkit.frontier.tradeoff import TradeOff, trade_offs
from labkit.plots.amounts import amount, interval

if TYPE_CHECKING:
    import pandas

STATUS_ORDER = ("frontier", "dominated", "incomparable")
_DIGITS: Mapping[AxisName, int] = {"speed": 3, "quality": 2, "size": 3}


def frontier(
    root: Root = Path(),
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of the pictures; results/figures below the lab by default."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show the non-dominated arms in speed, quality and size, and write frontier.png and frontier.svg.

    At least one complete record is needed below results/.
    """
    standings = judge(points(_latest(root)))
    figures = _draw(standings, out or root / "results" / "figures")
    tell_damaged(root)
    if as_json:
        typer.echo(json.dumps(_as_json(standings, figures), indent=2, allow_nan=False))
        return
    console = Console(highlight=False)
    for group in dict.fromkeys(s.point.group for s in standings):
        _print_group(console, group, [s for s in standings if s.point.group == group])
    console.print("Pictures: " + ", ".join(str(f) for f in figures), markup=False, soft_wrap=True)


def _latest(root: Path) -> pandas.DataFrame:
    from labkit.store import query

    frame = query.frontier_points(root)
    if not frame.empty:
        return frame
    bad = query.damaged(root)
    raise NoRecords(
        "a frontier needs at least one complete record in results/",
        got=f"none, and {len(bad)} damaged (labkit store rebuild lists them)" if len(bad) else "none",
        next_step="labkit run experiments/<file>.py",
    )


def _draw(standings: Sequence[Standing], folder: Path) -> tuple[Path, Path]:
    from labkit.plots.files import write_figure
    from labkit.plots.frontier import frontier_figure

    return write_figure(frontier_figure(standing_frame(standings)), folder, "frontier")


def _print_group(console: Console, group: Group, standings: list[Standing]) -> None:
    labels = [s.point.label for s in standings]
    names = {s.point.arm_hash: short_label(s.point.label, labels) for s in standings}
    console.print(f"[bold]{escape(group.family)}, {group.workload} tokens[/bold] on {escape(group.machine)}")
    heads = (Column("arm", overflow="fold"), *map(_head, group.axes), Column("standing", overflow="fold"))
    table = Table(*heads, box=SIMPLE_HEAD)
    for standing in sorted(standings, key=lambda s: STATUS_ORDER.index(s.status)):
        point = standing.point
        cells = (_position(point, axis) for axis in group.axes)
        table.add_row(escape(names[point.arm_hash]), *cells, escape(_standing(standing, names)))
    console.print(table)
    for trade in trade_offs(standings):
        console.print(f"Trade-off: {_trade_off(trade, names)}", markup=False)
    for line in _caveats(standings):
        console.print(f"Note: {line}", markup=False)
    console.print()


def _head(axis: Axis) -> str:
    return axis.title if axis.unit == "bytes" else f"{axis.title}, {axis.unit}"


def _position(point: Point, axis: Axis) -> str:
    estimate = point.values[axis.name]
    if estimate is None:
        return "not measured"
    text = interval(estimate.value, estimate.low, estimate.high, axis.unit, _DIGITS[axis.name])
    return text.removesuffix(f" {axis.unit}").replace(" [", "\n[")


def _standing(standing: Standing, names: Mapping[str, str]) -> str:
    if standing.status == "dominated":
        return "dominated by " + ", ".join(names[p.arm_hash] for p in standing.dominated_by)
    if standing.status == "incomparable":
        return "incomparable: no " + ", ".join(axis.title for axis in standing.missing)
    return "frontier"


def _trade_off(trade: TradeOff, names: Mapping[str, str]) -> str:
    gains, losses = (
        " and ".join(f"{a.title} ({_middle(trade.point, a)}, not {_middle(trade.other, a)})" for a in axes)
        for axes in (trade.gains, trade.gives_up)
    )
    pair = f"{names[trade.point.arm_hash]} instead of {names[trade.other.arm_hash]}"
    return f"{pair} gains {gains} for {losses}."


def _middle(point: Point, axis: Axis) -> str:
    estimate = point.values[axis.name]
    return "" if estimate is None else amount(estimate.value, axis.unit, _DIGITS[axis.name])


def _caveats(standings: list[Standing]) -> list[str]:
    """What a reader must know before quoting: noise, and points that different code has measured."""
    noisy = [s.point.label for s in standings if s.point.quiet is not True]
    versions = {s.point.code_hash for s in standings}
    lines = [f"measured on a busy machine, not quotable: {', '.join(noisy)}"] if noisy else []
    if len(versions) > 1:
        lines.append(f"{len(versions)} versions of labkit's code measured these; run them again to compare")
    return lines


def _as_json(standings: Sequence[Standing], figures: Sequence[Path]) -> dict[str, Any]:
    groups = []
    for group in dict.fromkeys(s.point.group for s in standings):
        mine = [s for s in standings if s.point.group == group]
        groups.append(
            {
                **{k: getattr(group, k) for k in ("machine", "family", "workload", "reference_hash")},
                "axes": {a.name: {"title": a.title, "unit": a.unit, "better": a.better} for a in group.axes},
                "points": [_json_point(s) for s in mine],
                "trade_offs": [_json_trade_off(t) for t in trade_offs(mine)],
                "notes": _caveats(mine),
            }
        )
    return {"groups": groups, "figures": [str(f) for f in figures]}


def _json_point(standing: Standing) -> dict[str, Any]:
    point = standing.point
    return {
        **{k: getattr(point, k) for k in ("label", "arm_hash", "run_id", "experiment", "quiet", "code_hash")},
        "status": standing.status,
        "dominated_by": [p.arm_hash for p in standing.dominated_by],
        "missing": [axis.name for axis in standing.missing],
        "values": {
            name: None if e is None else {"value": e.value, "low": e.low, "high": e.high, "n": e.n}
            for name, e in point.values.items()
        },
    }


def _json_trade_off(trade: TradeOff) -> dict[str, Any]:
    return {
        "point": trade.point.arm_hash,
        "other": trade.other.arm_hash,
        "gains": [axis.name for axis in trade.gains],
        "gives_up": [axis.name for axis in trade.gives_up],
    }
