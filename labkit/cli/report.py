"""Reports: a finished run as a table of verdicts, remarks and a sentence. Renders; computes nothing."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Column, Table

from labkit.cli.console import Console
from labkit.core.metrics import METRICS
from labkit.core.records import AxisResult, Record
from labkit.lab.reading.remarks import floor_words, remarks

VERDICT_STYLE = {"better": "green", "worse": "red", "equivalent": "cyan", "unresolved": "yellow"}
OUTCOME = {
    "supported": "the hypothesis is supported",
    "trade-off": "a trade-off: it improves what it claims and loses something it should hold",
    "refuted": "the hypothesis is refuted",
    "undecided": "undecided: at least one axis is unresolved",
    "failed": "no pair of visits was finished",
}


def print_verdicts(console: Console, record: Record) -> None:
    """The experiment, its two arms, the verdict on every axis and what to know of them; fits 80 columns."""
    console.print(f"[bold]{escape(record.experiment['name'])}[/bold]", highlight=False)
    for role in ("baseline", "candidate"):
        label = record.arm(role).label
        console.print(f"{role:<10} {label}", highlight=False, markup=False, soft_wrap=True)
    console.print(verdict_table(record))
    for axis in record.axes:
        if axis.verdict == "unresolved" and axis.notes:
            text = f"{METRICS[axis.metric].title}: {'; '.join(axis.notes)}"
            console.print(text, highlight=False, markup=False)
    for remark in remarks(record):
        console.print(remark, highlight=False, markup=False)


def verdict_table(record: Record) -> Table:
    """One row per axis: the change with its interval, margin and floor, the verdict and what was expected."""
    whole = (Column(head, no_wrap=True) for head in ("change for\nthe better", "margin", "n", "verdict"))
    table = Table(Column("axis", overflow="fold"), *whole, box=SIMPLE_HEAD)
    for axis in record.axes:
        style, expected = VERDICT_STYLE[axis.verdict], record.experiment["expects"].get(axis.metric)
        verdict = f"[{style}]{axis.verdict}[/{style}]"
        if expected:
            verdict += "\nas expected" if expected == axis.verdict else f"\nexpected\n{expected}"
        table.add_row(*_cells(axis), verdict)
    return table


def sentence(record: Record) -> str:
    """What was found, in a sentence; and, where it was not quiet, that it was not."""
    text = f"{record.experiment['name']}: {_found(record)}."
    if record.state == "partial":
        text += " The run is partial."
    if record.resumed:
        times = "once" if len(record.resumed) == 1 else f"{len(record.resumed)} times"
        text += f" It was resumed {times}."
    if not record.quiet["quiet"]:
        text += f" The machine was not quiet: {'; '.join(record.quiet['reasons'])}."
    if unstable := record.quiet.get("unstable"):
        text += f" Unstable from visit to visit: {', '.join(unstable)}."
    return text


def _found(record: Record) -> str:
    if record.kind != "control" or record.outcome == "failed":
        return OUTCOME[record.outcome]
    verdicts = ", ".join(f"{METRICS[axis.metric].title} {axis.verdict}" for axis in record.axes)
    return f"a control, which decides nothing ({verdicts})"


def _cells(axis: AxisResult) -> tuple[str, str, str, str]:
    metric = METRICS[axis.metric]
    ratio = axis.scale == "ratio"
    margin = f"{axis.margin:.0%}" if ratio and axis.margin >= 0.01 else f"{axis.margin:g}"
    margin = f"{axis.goal} {margin}" if ratio else f"{axis.goal} {margin} {metric.unit}"
    if axis.n == 0:
        return metric.title, "not measured", margin, "0"
    if axis.floor > 0:
        margin += f"\nfloor {floor_words(axis)}"
    units = f"{axis.n} {axis.unit}s" if axis.n != 1 else "exact" if metric.source == "artifact" else "1"
    if ratio:
        interval = "exact" if axis.low == axis.high else f"{axis.low:.3f} to {axis.high:.3f}"
        change = f"{axis.estimate:.3f}x\n{interval}"
    else:
        sign = "+" if metric.source == "visit" else ""
        ends = (f"{end:{sign}.2g}" for end in (axis.low, axis.high))
        change = f"{axis.estimate:{sign}.2g} {metric.unit}\n{' to '.join(ends)}"
    return metric.title, change, margin, units
