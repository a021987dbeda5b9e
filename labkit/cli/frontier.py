"""`labkit frontier`: what is not dominated, what is and by whom, the trade-offs, and the picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Column, Table

from labkit.cli.console import Console
from labkit.cli.damage import tell
from labkit.cli.pictures import FIGURES, draw_standings
from labkit.cli.root import Root
from labkit.core.errors import NoRecords
from labkit.frontier.axis import Axis, AxisName
from labkit.frontier.dominance import Standing, judge
from labkit.frontier.points import Group, Point, points
from labkit.frontier.tradeoff import TradeOff, trade_offs
from labkit.frontier.versions import Gathered, gather
from labkit.plots.amounts import amount, interval
from labkit.store import query
from labkit.store.read import Damaged

if TYPE_CHECKING:
    import pandas
    from duckdb import DuckDBPyConnection

    _Read = tuple[pandas.DataFrame, int, tuple[Damaged, ...]]

STATUS_ORDER = ("frontier", "dominated", "incomparable")
_GROUP_KEYS = (
    *("machine", "family", "workload", "workload_hash", "reference", "reference_hash"),
    *("windows", "windows_hash", "code_hash", "packages_hash"),
)
_POINT_KEYS = (
    *("label", "arm_hash", "plan_hash", "run_id", "experiment", "quiet"),
    *("code_hash", "packages_hash"),
)
_DIGITS: Mapping[AxisName, int] = {"speed": 3, "quality": 2, "size": 3}


def frontier(
    root: Root = Path(),
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of the pictures; results/figures below the lab by default."),
    ] = None,
    across_versions: Annotated[
        bool,
        typer.Option(
            "--across-versions",
            help="Compare points of different labkit code and packages, which are kept apart otherwise.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show the non-dominated arms in speed, quality and size, and write frontier.png and frontier.svg.

    Of each workload the newest code and packages are shown. At least one complete record is needed below
    results/.
    """
    latest, tuned, bad = _asked(root)
    standings = judge(points(latest, across_versions=across_versions))
    figures = draw_standings(standings, out or root / FIGURES)
    gathered = gather(latest, across_versions=across_versions)
    notes = _left_out(gathered.hidden, tuned)
    tell(bad)
    if as_json:
        answer = {
            "groups": _json_groups(standings, gathered),
            "notes": notes,
            "figures": [str(f) for f in figures],
        }
        typer.echo(json.dumps(answer, indent=2, allow_nan=False))
        return
    console = Console(highlight=False)
    for group in dict.fromkeys(s.point.group for s in standings):
        _print_group(console, group, [s for s in standings if s.point.group == group], gathered)
    for line in notes:
        console.print(f"Note: {line}", markup=False)
    console.print("Pictures: " + ", ".join(str(f) for f in figures), markup=False, soft_wrap=True)


def _asked(root: Path) -> _Read:
    """The points, how many records were scored on `tune`, and the damaged ones. Raises NoRecords for none."""
    latest, tuned, bad = query.ask(root, _read)
    if not latest.empty:
        return latest, tuned, bad
    others = [f"{len(bad)} damaged (labkit store list says why)"] if bad else []
    others += [f"{tuned} scored on text of the split `tune`"] if tuned else []
    raise NoRecords(
        "a frontier needs at least one complete record in results/",
        got=", and ".join(["none", *others]),
        next_step="labkit run experiments/<file>.py",
    )


def _read(connection: DuckDBPyConnection) -> _Read:
    (tuned,) = connection.execute("SELECT count(*) FROM tuned").fetchone() or (0,)
    return connection.execute("SELECT * FROM latest").df(), tuned, query.damaged_files(connection)


def _left_out(hidden: int, tuned: int) -> list[str]:
    """What was measured and is not shown, and how to see it."""
    lines = []
    if hidden:
        groups = "1 older group" if hidden == 1 else f"{hidden} older groups"
        lines.append(
            f"{groups} hidden, measured by other code or packages, which is no fair comparison: "
            "labkit frontier --across-versions puts all side by side."
        )
    if tuned:
        records = "1 record was" if tuned == 1 else f"{tuned} records were"
        lines.append(
            f"{records} scored on text of the split `tune` and left out; labkit decides on `promote`."
        )
    return lines


def _print_group(console: Console, group: Group, standings: list[Standing], gathered: Gathered) -> None:
    console.print(f"[bold]{escape(group.family)}, {group.workload} tokens[/bold] on {escape(group.machine)}")
    console.print(_identity(group), markup=False)
    heads = (Column("arm", overflow="fold"), *map(_head, group.axes), Column("standing", overflow="fold"))
    table = Table(*heads, box=SIMPLE_HEAD)
    for standing in sorted(standings, key=lambda s: STATUS_ORDER.index(s.status)):
        point = standing.point
        cells = (_position(point, axis) for axis in group.axes)
        table.add_row(escape(point.short_label), *cells, escape(_standing(standing)))
    console.print(table)
    for trade in trade_offs(standings):
        console.print(f"Trade-off: {_trade_off(trade)}", markup=False)
    for line in _caveats(group, standings, gathered):
        console.print(f"Note: {line}", markup=False)
    console.print()


def _identity(group: Group) -> str:
    """What decides whether another point may stand here, beside the machine and the workload."""
    windows = f"{group.windows} ({group.windows_hash[:8]})" if group.windows_hash else group.windows
    code, packages = ((h or "several")[:8] for h in (group.code_hash, group.packages_hash))
    return f"{windows}; code {code}, packages {packages}"


def _head(axis: Axis) -> str:
    return axis.title if axis.unit == "bytes" else f"{axis.title}, {axis.unit}"


def _position(point: Point, axis: Axis) -> str:
    estimate = point.values[axis.name]
    if estimate is None:
        return "not measured"
    text = interval(estimate.value, estimate.low, estimate.high, axis.unit, _DIGITS[axis.name])
    return text.removesuffix(f" {axis.unit}").replace(" [", "\n[")


def _standing(standing: Standing) -> str:
    if standing.status == "dominated":
        return "dominated by " + ", ".join(p.short_label for p in standing.dominated_by)
    if standing.status == "incomparable":
        return "incomparable: no " + ", ".join(axis.title for axis in standing.missing)
    return "frontier"


def _trade_off(trade: TradeOff) -> str:
    gains, losses = (
        " and ".join(f"{a.title} ({_middle(trade.point, a)}, not {_middle(trade.other, a)})" for a in axes)
        for axes in (trade.gains, trade.gives_up)
    )
    pair = f"{trade.point.short_label} instead of {trade.other.short_label}"
    return f"{pair} gains {gains} for {losses}."


def _middle(point: Point, axis: Axis) -> str:
    estimate = point.values[axis.name]
    return "" if estimate is None else amount(estimate.value, axis.unit, _DIGITS[axis.name])


def _caveats(group: Group, standings: list[Standing], gathered: Gathered) -> list[str]:
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


def _json_groups(standings: Sequence[Standing], gathered: Gathered) -> list[dict[str, Any]]:
    return [
        _json_group(group, [s for s in standings if s.point.group == group], gathered)
        for group in dict.fromkeys(s.point.group for s in standings)
    ]


def _json_group(group: Group, standings: list[Standing], gathered: Gathered) -> dict[str, Any]:
    return {
        **{k: getattr(group, k) for k in _GROUP_KEYS},
        "axes": {a.name: {"title": a.title, "unit": a.unit, "better": a.better} for a in group.axes},
        "points": [_json_point(s) for s in standings],
        "trade_offs": [_json_trade_off(t) for t in trade_offs(standings)],
        "notes": _caveats(group, standings, gathered),
    }


def _json_point(standing: Standing) -> dict[str, Any]:
    """One point; points name one another by label, which is unique within a group as arm hashes are not."""
    point = standing.point
    return {
        **{k: getattr(point, k) for k in _POINT_KEYS},
        "status": standing.status,
        "dominated_by": [p.label for p in standing.dominated_by],
        "missing": [axis.name for axis in standing.missing],
        "values": {
            name: None if e is None else {"value": e.value, "low": e.low, "high": e.high, "n": e.n}
            for name, e in point.values.items()
        },
    }


def _json_trade_off(trade: TradeOff) -> dict[str, Any]:
    return {
        "point": trade.point.label,
        "other": trade.other.label,
        "gains": [axis.name for axis in trade.gains],
        "gives_up": [axis.name for axis in trade.gives_up],
    }
