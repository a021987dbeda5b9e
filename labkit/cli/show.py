"""`labkit show`: everything that a record says, opened by its run id or its experiment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from labkit.cli.complete import complete_runs
from labkit.cli.console import Console, visible
from labkit.cli.report import sentence, verdict_table
from labkit.cli.root import Root
from labkit.core.metrics import METRICS
from labkit.core.records import ArmResult, Estimate, Record
from labkit.plots.amounts import amount, interval

_HASH = 10


def show(
    run: Annotated[
        str,
        typer.Argument(
            autocompletion=complete_runs, help="A run id, its start or end, a path, or an experiment."
        ),
    ],
    root: Root = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print the record itself, as JSON.")] = False,
) -> None:
    """Open a record: its verdicts, arms, looks, noise, parity, predictions and where it comes from.

    Of an experiment the newest complete record is meant.
    """
    from labkit.lab.reading.lookup import look_up
    from labkit.lab.reading.show import check_shown

    found = look_up(root, run)
    if as_json:
        answer = {"path": found.path, "record": found.record.to_json()}
        typer.echo(json.dumps(answer, indent=2, ensure_ascii=False, allow_nan=False))
        return
    check_shown(found.record)
    console = Console(highlight=False)
    _print(console, found.record)
    console.print(f"record: {found.path}", markup=False, soft_wrap=True)


def _print(console: Console, record: Record) -> None:
    console.print(f"[bold]{escape(record.experiment['name'])}[/bold]")
    console.print(record.experiment["statement"], markup=False)
    for arm in record.arms:
        console.print(f"{arm.role:<10} {arm.label}", markup=False, soft_wrap=True)
    console.print(verdict_table(record))
    console.print(sentence(record), markup=False)
    if record.kind == "control":
        console.print("A control: the difference was known before, so it decides nothing.")
    console.print("\n[bold]measured[/bold]")
    console.print(arms_table(record))
    for head, lines in _sections(record).items():
        if lines:
            console.print(f"[bold]{head}[/bold]")
            for line in lines:
                console.print(Padding(Text(visible(line)), (0, 0, 0, 2), expand=False))


def arms_table(record: Record) -> Table:
    """The metrics of both arms with their intervals, over the visits of each."""
    table = Table(Column("metric", overflow="fold"), *(arm.role for arm in record.arms), box=SIMPLE_HEAD)
    for name, metric in METRICS.items():
        if any(name in arm.metrics for arm in record.arms):
            cells = (_estimate(arm.metrics.get(name), metric.unit) for arm in record.arms)
            table.add_row(escape(metric.title), *cells)
    return table


def _estimate(estimate: Estimate | None, unit: str) -> str:
    if estimate is None:
        return "not measured"
    return escape(interval(estimate.value, estimate.low, estimate.high, unit).replace(" [", "\n["))


def _sections(record: Record) -> Mapping[str, list[str]]:
    return {
        "on the verdicts": [
            f"{METRICS[axis.metric].title}: {'; '.join(axis.notes)}" for axis in record.axes if axis.notes
        ],
        "predicted": list(_predictions(record)),
        "looks": list(_looks(record)),
        "A/A floor": list(_floor(record)),
        "noise over the run": list(_noise(record)),
        "parity": list(_parity(record)),
        "machine": list(_machine(record)),
        "visits": list(_visits(record)),
        "notes": list(record.notes),
        "provenance": list(_provenance(record)),
    }


def _predictions(record: Record) -> Iterator[str]:
    from labkit.lab.reading.show import predictions

    for each in predictions(record):
        metric = METRICS[each.metric]
        said = amount(each.predicted, metric.unit)
        came = "not measured" if each.measured is None else f"{amount(each.measured, metric.unit)} measured"
        ratio = "" if each.ratio is None else f" ({each.ratio:.2f}x)"
        yield f"{each.role}, {metric.title}: {said} predicted, {came}{ratio}"


def _looks(record: Record) -> Iterator[str]:
    planned = record.experiment.get("looks", 1)
    if record.looks and (planned > 1 or len(record.looks) > 1):
        yield f"{len(record.looks)} of {planned} planned"
    for number, look in enumerate(record.looks, 1):
        found = ", ".join(f"{name} {verdict}" for name, verdict in look.get("verdicts", {}).items())
        spent = f"after {look.get('pairs')} pairs, alpha {look.get('alpha', 0):.3g}"
        yield f"{number}. {spent}: {found or 'no verdict'}"


def _floor(record: Record) -> Iterator[str]:
    floor = record.floor
    if not floor:
        return
    yield f"{floor.get('run_id')}: {floor.get('pairs')} pairs, {str(floor.get('started_at'))[:10]}"
    for name, found in floor.get("metrics", {}).items():
        metric = METRICS.get(name)
        if metric and isinstance(found, Mapping) and "floor" in found:
            value = (
                f"{found['floor']:.2%}" if metric.scale == "ratio" else f"{found['floor']:.3g} {metric.unit}"
            )
            yield f"{metric.title}: {value}"


def _noise(record: Record) -> Iterator[str]:
    for name, known in record.noise.items():
        title = METRICS[name].title if name in METRICS else name
        phrases = known.get("phrases") if isinstance(known, Mapping) else None
        yield from phrases or [f"{title}: steady"]


def _parity(record: Record) -> Iterator[str]:
    from labkit.lab.measuring.parity import describe

    for role, found in record.parity.items():
        for oracle, compared in found.get("oracles", {}).items():
            yield f"{role} and {oracle}: {describe(compared)}"


def _machine(record: Record) -> Iterator[str]:
    yield str(record.machine.get("slug"))
    quiet = record.quiet
    yield "quiet" if quiet.get("quiet") is True else f"not quiet: {'; '.join(quiet.get('reasons', ()))}"
    if quiet.get("unstable"):
        yield f"unstable from visit to visit: {', '.join(quiet['unstable'])}"


def _visits(record: Record) -> Iterator[str]:
    counts: dict[str, int] = {}
    for visit in record.visits:
        counts[visit.status] = counts.get(visit.status, 0) + 1
    yield ", ".join(f"{count} {status}" for status, count in counts.items()) or "none"
    design = record.experiment.get("design", "process-pair")
    yield f"design {design}, {record.started_at} to {record.ended_at}"
    for error in dict.fromkeys(visit.error for visit in record.visits if visit.error):
        yield f"failed: {error}"


def _provenance(record: Record) -> Iterator[str]:
    source = record.provenance
    dirty = " with changes" if source.get("git_dirty") else ""
    yield f"labkit {source.get('labkit_version')}, code {source.get('code_hash')}"
    if source.get("git_revision"):
        yield f"git {str(source['git_revision'])[:_HASH]}{dirty}"
    packages = ", ".join(f"{name} {version}" for name, version in _table(source.get("packages")).items())
    yield f"python {source.get('python')}; {packages}"
    for arm in record.arms:
        yield f"{arm.role}: {_arm(arm)}"
    yield f"workload {record.workload_hash}, experiment file {record.experiment.get('source_hash')}"


def _arm(arm: ArmResult) -> str:
    artifact = f"artifact {str(arm.artifact.get('fingerprint'))[:_HASH]}"
    return f"arm {arm.arm_hash}, plan {arm.plan_hash}, {artifact}"


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
