"""`labkit bench`: measurements that need no experiment's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Column, Table

from labkit.cli import load_options as options
from labkit.cli.console import Console
from labkit.cli.finished import print_finished
from labkit.cli.kv_option import KV
from labkit.cli.progress import ProgressSink
from labkit.cli.root import Root
from labkit.cli.show import arms_table
from labkit.core.arm import Arm, Workload
from labkit.core.metrics import METRICS
from labkit.plots.amounts import interval

if TYPE_CHECKING:
    from labkit.lab.loading.alone import Alone

app = typer.Typer(help="Measure without an experiment's file.", no_args_is_help=True)
PAIRS, VISITS = 8, 3


@app.callback()
def _group() -> None:
    """Measure without an experiment's file."""


@app.command()
def load(
    model: options.Model,
    kv: KV = "bf16",
    method: options.Method = None,
    policy: options.Policy = None,
    cap: options.Cap = None,
    budget: options.KVBudget = None,
    against: options.Against = None,
    clients: options.Clients = None,
    rate: options.Rate = None,
    trace: options.Trace = None,
    requests: options.Requests = None,
    prompt: options.Prompt = None,
    new: options.New = None,
    ttft_objective: options.TTFTObjective = None,
    tpot_objective: options.TPOTObjective = None,
    pairs: options.Pairs = None,
    margin: options.Margin = None,
    seed: options.Seed = 0,
    floor: options.Floor = True,
    root: Root = Path(),
    as_json: options.AsJson = False,
) -> None:
    """Put MODEL under load: latency percentiles, rates and goodput of many requests at a time.

    With --against it is a paired experiment, with a record and a verdict on every axis; without, the figures
    of one arm, and no record.
    """
    from labkit.lab.loading.asked import workload_of

    arm = Arm(model, kv=kv, method=method, policy=policy, cap=cap, kv_budget_bytes=budget)
    coming: dict[str, Any] = {"clients": clients, "rate": rate, "trace": trace, "requests": requests}
    sizes: dict[str, Any] = {"prompt": prompt, "new": new, "seed": seed}
    good: dict[str, Any] = {"ttft_objective_s": ttft_objective, "tpot_objective_s": tpot_objective}
    workload = workload_of(**coming, **sizes, **good)
    if against is None:
        _alone(arm, workload, VISITS if pairs is None else pairs, as_json)
        return
    how = {"pairs": PAIRS if pairs is None else pairs, "margin": margin, "root": root, "floor": floor}
    _versus(arm, against, workload, how, as_json)


def _versus(arm: Arm, against: str, workload: Workload, how: dict[str, Any], as_json: bool) -> None:
    from labkit.lab.loading.versus import load_against

    console = Console(highlight=False)
    with ProgressSink(Console(stderr=True)) as sink:
        finished = load_against(arm, against, workload, sink=sink, **how)
    if as_json:
        typer.echo(json.dumps(finished.record.to_json(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    console.print(arms_table(finished.record))
    print_finished(console, how["root"], finished)


def _alone(arm: Arm, workload: Workload, visits: int, as_json: bool) -> None:
    from labkit.lab.loading.alone import load_alone

    with ProgressSink(Console(stderr=True)) as sink:
        found = load_alone(arm, workload, visits=visits, sink=sink)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    _print_alone(Console(highlight=False), found)


def _print_alone(console: Console, found: Alone) -> None:
    several = f"median of {len(found.visits)} visits, the least and the most"
    console.print(f"[bold]{escape(found.label)}[/bold]", soft_wrap=True)
    console.print(f"load       {found.workload.label()}", markup=False)
    table = Table("metric", Column(several, no_wrap=True), box=SIMPLE_HEAD)
    for figure in found.figures():
        metric = METRICS[figure.metric]
        shown = interval(figure.value, figure.low, figure.high, metric.unit)
        table.add_row(escape(metric.title), escape(shown))
    console.print(table)
    quiet = (
        f"The machine was not quiet: {'; '.join(found.noisy)}." if found.noisy else "The machine was quiet."
    )
    console.print(f"{quiet} No record: one compares two arms, with --against.", markup=False)
