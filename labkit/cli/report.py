"""Reports: a finished run as a table of verdicts and a sentence. Renders records; computes nothing."""

from __future__ import annotations

from rich.table import Table

from labkit.core.metrics import METRICS
from labkit.core.records import AxisResult, Record

VERDICT_STYLE = {"better": "green", "worse": "red", "equivalent": "cyan", "unresolved": "yellow"}
OUTCOME = {
    "supported": "the hypothesis is supported",
    "trade-off": "a trade-off: it improves what it claims and loses something it should hold",
    "refuted": "the hypothesis is refuted",
    "undecided": "undecided: at least one axis is unresolved",
    "failed": "nothing was measured",
}


def verdict_table(record: Record) -> Table:
    """One row per axis: the change with its interval, the margin, the verdict, what was expected."""
    baseline, candidate = record.arms
    table = Table(title=f"{record.experiment['name']}: {candidate.label}  against  {baseline.label}")
    for column in ("axis", "change for the better", "95% interval", "margin", "n", "verdict", "expected"):
        table.add_column(column)
    for axis in record.axes:
        style = VERDICT_STYLE[axis.verdict]
        expected = record.experiment["expects"].get(axis.metric, "-")
        mark = "" if expected in ("-", axis.verdict) else "  (differs)"
        table.add_row(*_cells(axis), f"[{style}]{axis.verdict}[/{style}]", expected + mark)
    return table


def sentence(record: Record) -> str:
    """What was found, in a sentence; and, where it was not quiet, that it was not."""
    text = f"{record.experiment['name']}: {OUTCOME[record.outcome]}."
    if record.state == "partial":
        text += " The run is partial."
    if not record.quiet["quiet"]:
        text += f" The machine was not quiet: {'; '.join(record.quiet['reasons'])}."
    return text


def _cells(axis: AxisResult) -> tuple[str, str, str, str, str]:
    metric = METRICS[axis.metric]
    if axis.n == 0:
        return metric.title, "-", "-", f"{axis.goal} {axis.margin:g}", "not measured"
    units = f"{axis.n} {axis.unit}s" if axis.n != 1 else "exact"
    if axis.scale == "ratio":
        interval = f"{axis.low:.3f} to {axis.high:.3f}"
        return metric.title, f"{axis.estimate:.3f}x", interval, f"{axis.goal} {axis.margin:.0%}", units
    interval = f"{axis.low:.2g} to {axis.high:.2g}"
    value = f"{axis.estimate:.2g} {metric.unit}"
    return metric.title, value, interval, f"{axis.goal} {axis.margin:g} {metric.unit}", units
