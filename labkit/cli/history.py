"""`labkit history`: the steps of a metric over time, and what changed at each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Column, Table

from labkit.cli.complete import complete_metrics
from labkit.cli.console import Console
from labkit.cli.damage import tell
from labkit.cli.pictures import FIGURES
from labkit.cli.root import Root
from labkit.core.metrics import METRICS
from labkit.plots.amounts import amount, interval

if TYPE_CHECKING:
    from labkit.lab.reading.history import History, Turn

_DAYS = 10


def history(
    metric: Annotated[str, typer.Argument(autocompletion=complete_metrics, help="Such as decode_tps.")],
    root: Root = Path(),
    arm: Annotated[str | None, typer.Option("--arm", help="A label, part of one, or an arm's hash.")] = None,
    experiment: Annotated[str | None, typer.Option("--experiment", help="Records of that one only.")] = None,
    workload: Annotated[str | None, typer.Option("--workload", help="Such as 256+32, or its hash.")] = None,
    machine: Annotated[str | None, typer.Option("--machine", help="A machine class, or part of it.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Count records of busy machines and of stopped runs too.")
    ] = False,
    controls: Annotated[bool, typer.Option("--controls", help="Count control runs too.")] = False,
    picture: Annotated[bool, typer.Option("--picture", help="Draw it into results/figures/.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show where the level of a metric changed over the records of an arm, and what changed there.

    Each arm, machine class and workload by itself. A level holds at least two records.
    """
    from labkit.lab.reading.history import history as find
    from labkit.lab.reading.series import Wanted
    from labkit.store import query

    wanted = Wanted(arm, experiment, workload, machine, everything, controls)
    found = find(root, metric, wanted)
    figures = _draw(root, metric, found) if picture else ()
    tell(query.ask(root, query.damaged_files))
    if as_json:
        answer = {
            "metric": metric,
            "series": [each.to_json() for each in found],
            "figures": list(map(str, figures)),
        }
        typer.echo(json.dumps(answer, indent=2, allow_nan=False))
        return
    _print_all(Console(highlight=False), found, figures)


def _print_all(console: Console, found: Sequence[History], figures: Sequence[Path]) -> None:
    for each in found:
        _print(console, each)
    if len(found) > 1 and any(each.steps for each in found):
        granted = f"A step of these {len(found)} series needs a p of at most {found[0].alpha:.2g}"
        console.print(f"{granted}: they share the chance of a false one.", markup=False)
    if figures:
        console.print("Pictures: " + ", ".join(map(str, figures)), markup=False, soft_wrap=True)


def _draw(root: Path, metric: str, found: Sequence[History]) -> tuple[Path, Path]:
    from labkit.lab.reading.history import history_frame
    from labkit.plots.files import write_figure
    from labkit.plots.history import history_figure

    return write_figure(history_figure(history_frame(found)), root / FIGURES, f"history-{metric}")


def _print(console: Console, each: History) -> None:
    series, metric = each.series, METRICS[each.series.metric]
    console.print(f"[bold]{escape(series.label)}, {escape(series.workload)} tokens[/bold]: {metric.title}")
    console.print(f"on {series.machine}", markup=False)
    if each.levels:
        console.print(_levels(each))
    for step in each.steps:
        _print_step(console, each, step)
    for note in _notes(each):
        console.print(f"Note: {note}", markup=False)
    console.print()


def _levels(each: History) -> Table:
    unit = METRICS[each.series.metric].unit
    dates = {result.run_id: result.started_at[:_DAYS] for result in each.series.results}
    right = (Column(head, justify="right") for head in ("records", "level with its 95% interval"))
    table = Table("from", "to", *right, box=SIMPLE_HEAD)
    for level in each.levels:
        text = interval(level.value, level.low, level.high, unit)
        table.add_row(dates[level.first], dates[level.last], str(level.results), text)
    return table


def _print_step(console: Console, each: History, step: Turn) -> None:
    colour = "green" if step.direction == "improvement" else "red"
    head = f"[{colour}]{step.direction}[/{colour}] on {step.at[:_DAYS]}: {_size(each, step)}, {_chance(step)}"
    console.print(head)
    for change in step.changed:
        console.print(f"  {change.text()}", markup=False)
    if step.weak:
        doubt = f"in doubt: p {step.p_correlated:.2g} where each record is like the one before it (lag-1 0.5)"
        console.print(f"  {doubt}", markup=False)
    if not any(change.kind != "git" for change in step.changed):
        console.print("  nothing else that is recorded changed: perhaps the machine itself", markup=False)
    console.print(f"  from {step.before}\n  to   {step.after}", markup=False, soft_wrap=True)


def _size(each: History, step: Turn) -> str:
    if METRICS[each.series.metric].scale == "ratio":
        inner = "" if step.low == step.high else f" [{step.low:.3f}, {step.high:.3f}]"
        return f"{step.size:.3f}x{inner}"
    return f"{step.size:+.3g} [{step.low:+.3g}, {step.high:+.3g}] {METRICS[each.series.metric].unit}"


def _chance(step: Turn) -> str:
    if step.test == "exact":
        return "exact"
    return f"p {step.p_value:.2g} ({step.test})"


def _notes(each: History) -> list[str]:
    metric = METRICS[each.series.metric]
    notes = list(each.notes)
    if len(each.series.counted) >= 3 and each.spread > 0:
        spread = f"{each.spread:.1%}" if metric.scale == "ratio" else amount(each.spread, metric.unit)
        together = (
            f", each like the one before it ({each.correlation:.1f})" if each.correlation >= 0.3 else ""
        )
        notes.append(f"from record to record it varies by {spread} (SD){together}")
    return notes
