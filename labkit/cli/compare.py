"""`labkit compare`: two records metric by metric, with a status for each, and why where it is no verdict."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Column, Table

from labkit.cli.complete import complete_runs
from labkit.cli.console import Console
from labkit.cli.root import Root
from labkit.core.metrics import METRICS, Metric
from labkit.core.records import Estimate
from labkit.plots.amounts import amount

if TYPE_CHECKING:
    from labkit.lab.reading.compare import Compared, Comparison

STYLES: Mapping[str, str] = {
    "improved": "green",
    "worse": "red",
    "equivalent": "cyan",
    "unresolved": "yellow",
    "failed": "red",
    "missing": "yellow",
    "version-mismatch": "yellow",
}

Run = Annotated[
    str,
    typer.Argument(
        autocompletion=complete_runs, help="A run id, its start or end, a path, or an experiment."
    ),
]


def compare(
    first: Run,
    second: Run,
    root: Root = Path(),
    across_versions: Annotated[
        bool,
        typer.Option(
            "--across-versions",
            help="Compare although code, packages, artifact, BLAS, plan, design or experiment file differ.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Compare two records, arm by arm and metric by metric: is the second better than the first?

    What was measured on another machine or workload is never compared.
    """
    from labkit.lab.reading.compare import compare as find

    found = find(first, second, root, across_versions=across_versions)
    if as_json:
        typer.echo(json.dumps(finite(found.to_json()), indent=2, allow_nan=False))
        return
    print_comparison(Console(highlight=False), found)


def print_comparison(console: Console, found: Comparison) -> None:
    """Both records, a table for each arm, what differs and how the intervals came; fits 80 columns."""
    for name, stored in (("first", found.before), ("second", found.after)):
        console.print(f"{name:<7} {stored.record.run_id}", markup=False, soft_wrap=True)
    for role in dict.fromkeys(row.role for row in found.rows):
        label = found.after.record.arm(role).label
        console.print(f"\n[bold]{role}[/bold] {escape(label)}")
        console.print(_rows([row for row in found.rows if row.role == role]))
    for line in _lines(found):
        console.print(line, markup=False)


def finite(value: object) -> object:
    """JSON data with infinities, which JSON has no word for, as None."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _rows(rows: list[Compared]) -> Table:
    heads = ("first,\nsecond", "change for\nthe better", "margin", "status")
    whole = (Column(head, no_wrap=True) for head in heads)
    table = Table(Column("metric", overflow="fold"), *whole, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        metric, style = METRICS[row.metric], STYLES[row.status]
        values = "\n".join(_value(metric, estimate) for estimate in (row.before, row.after))
        status = f"[{style}]{row.status}[/{style}]"
        table.add_row(metric.title, values, _change(metric, row), _margin(metric, row), status)
    return table


def _value(metric: Metric, estimate: Estimate | None) -> str:
    return "-" if estimate is None else amount(estimate.value, metric.unit)


def _change(metric: Metric, row: Compared) -> str:
    change = row.change
    if change is None:
        return "-"
    if metric.scale == "ratio":
        ends = "exact" if change.exact else f"{change.low:.3f} to {change.high:.3f}"
        return f"{change.value:.3f}x\n{ends}"
    ends = "exact" if change.exact else f"{change.low:+.2g} to {change.high:+.2g}"
    return f"{change.value:+.2g}\n{ends}"


def _margin(metric: Metric, row: Compared) -> str:
    ratio = metric.scale == "ratio"
    text = f"{row.margin:.0%}" if ratio and row.margin >= 0.01 else f"{row.margin:g}"
    return text if row.registered else f"({text})"


def _lines(found: Comparison) -> Iterator[str]:
    """The reasons, the way of the intervals, and the notes."""
    for (status, why), roles in _reasons(found).items():
        yield f"{status} ({' and '.join(roles)}): {why}"
    if any(row.status == "version-mismatch" for row in found.rows) and not found.across_versions:
        yield (
            "Not compared, since that may be all the difference. --across-versions compares what other code, "
            "packages, artifacts and plans measured; never what another machine, workload or text did."
        )
    if found.across_versions:
        yield f"Across versions, each of which may be the reason: {_versions(found) or 'none differs'}"
    if any(row.change is not None for row in found.rows):
        yield f"Intervals are unpaired across runs: {_width(found)}"
        yield "A margin in brackets is labkit's own; the first record registered the others."
    for note in found.notes:
        yield f"Note: {note}"


def _reasons(found: Comparison) -> dict[tuple[str, str], list[str]]:
    """(status, why) -> the arms that have it, for what was not compared."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in (row for row in found.rows if row.change is None):
        roles = reasons.setdefault((row.status, row.why), [])
        roles += [row.role] if row.role not in roles else []
    return reasons


def _versions(found: Comparison) -> str:
    from labkit.lab.reading.circumstances import VERSIONS

    changes = (change for of_role in found.differs.values() for change in of_role)
    return ", ".join(dict.fromkeys(change.text() for change in changes if change.kind in VERSIONS))


def _width(found: Comparison) -> str:
    from labkit.lab.reading.unpaired import ASSUMED, is_assumed

    named = dict.fromkeys(row.metric for row in found.rows if row.change and not row.change.exact)
    known = {name: found.spreads[name].sd for name in named if name in found.spreads}
    told = [_spread(METRICS[name], sd) for name, sd in known.items() if sd > 0]
    if any(name not in found.spreads and is_assumed(METRICS[name]) for name in named):
        rest = "other rates and times" if told else "rates and times"
        told.append(f"{ASSUMED.sd:.0%} assumed of {rest}, not repeated often enough")
    widened = f", and at least what repeated runs differ by: {', '.join(told)}" if told else ""
    return f"each run's own{widened}."


def _spread(metric: Metric, sd: float) -> str:
    return f"{metric.title} " + (f"{sd:.1%}" if metric.scale == "ratio" else f"{sd:.2g} {metric.unit}")
