"""How well `labkit fit` predicts both bundled models, at three contexts and schemes: a table for docs/fit.md.

Run: python benchmarks/fit.py [--out docs/fit.md] [--contexts 256 512 1024]

Each cell is predicted and measured in turn, three times; medians count. The bounds are 10% of the peak and
20% of decode; it ends with 1 where one does not hold.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

import labkit
from labkit.bench.prediction import load_of, predictor_of
from labkit.bench.visit import run_visit, workload_request
from labkit.core.errors import PlanRefused
from labkit.engine.model import Model
from labkit.lab.measuring.provenance import machine_class, packages
from labkit.model.backend import prepare
from labkit.model.memory import peak_metrics, reset_peak

MODELS = ("smollm2", "gemma3-270m")
CONTEXTS = (256, 512, 1024)
SCHEMES = ("bf16", "affine:8", "affine:4")
NEW_TOKENS, ROUNDS, LIMIT_S = 32, 3, 900
PEAK_BOUND, DECODE_BOUND = 0.10, 0.20


@dataclass(frozen=True, slots=True)
class Cell:
    """One model, context and scheme, with pairs of what was predicted and measured.

    peak: bytes. beyond: bytes without the weights. decode, prefill: tok/s. refused: the planner's reason.
    """

    model: str
    kv: str
    context: int
    peak: tuple[float, float] = (0.0, 0.0)
    beyond: tuple[float, float] = (0.0, 0.0)
    decode: tuple[float, float] = (0.0, 0.0)
    prefill: tuple[float, float] = (0.0, 0.0)
    refused: str = ""

    @property
    def within(self) -> bool:
        """Whether both bounds hold."""
        return abs(off(self.peak)) <= PEAK_BOUND and abs(off(self.decode)) <= DECODE_BOUND


def off(pair: tuple[float, float]) -> float:
    """How far the prediction lies from the measurement, as a share of it."""
    predicted, measured = pair
    return predicted / measured - 1


def measure_cell(model: Model, kv: str, context: int) -> Cell:
    """Predict and measure in turn, so that what disturbs one disturbs the other."""
    arm = labkit.Arm(model.name, kv=kv)
    workload = labkit.Workload(context - NEW_TOKENS, NEW_TOKENS)
    request = workload_request(model, arm, workload, 0)
    try:
        plan = model.resolve(request)
    except PlanRefused as error:
        return Cell(model.name, kv, context, refused=_reason(str(error)))
    expected, load = predictor_of(model, plan), load_of(plan, workload)
    predicted, measured = [], []
    for _ in range(ROUNDS):
        predicted.append(expected.predict(load, expected.calibrate(load)).metrics())
        reset_peak()
        measured.append(run_visit(model, request, peak_metrics).metrics)
    pairs = {
        name: tuple(statistics.median(run[name] for run in runs) for runs in (predicted, measured))
        for name in ("peak_bytes", "decode_tps", "prefill_tps")
    }
    peak, weights = pairs["peak_bytes"], model.artifact.artifact_bytes
    beyond = (peak[0] - weights, peak[1] - weights)
    return Cell(model.name, kv, context, peak, beyond, pairs["decode_tps"], pairs["prefill_tps"])


def _reason(message: str) -> str:
    """The planner's reason in one line."""
    return " ".join(message.splitlines()[1].removeprefix("- ").split())


def cells_of(name: str, contexts: list[int]) -> list[Cell]:
    """The cells of one model, in this process."""
    model = labkit.load(name)
    return [measure_cell(model, kv, context) for kv in SCHEMES for context in contexts]


def measured_apart(name: str, contexts: list[int]) -> list[Cell]:
    """The cells of one model, in a process of its own, so that none starts with another's memory."""
    command = [sys.executable, __file__, "--model", name, "--contexts", *map(str, contexts)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT_S)
    pairs = ("peak", "beyond", "decode", "prefill")
    return [Cell(**{**cell, **{p: tuple(cell[p]) for p in pairs}}) for cell in json.loads(done.stdout)]


def table(cells: list[Cell]) -> Iterator[str]:
    """The table in Markdown, a line a cell."""
    heads = ("model", "KV", "context", "peak, MB", "off", "beyond weights: off", "decode, tok/s", "off")
    yield f"| {' | '.join((*heads, 'prefill, tok/s'))} |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|"
    yield from map(_line, cells)


def _line(cell: Cell) -> str:
    name = f"| {cell.model} | {cell.kv} | {cell.context} |"
    if cell.refused:
        return f"{name} refused | | | | | |"
    peak, decode, prefill = (
        f"{predicted:.{digits}f} / {measured:.{digits}f}"
        for digits, (predicted, measured) in (
            (1, (cell.peak[0] / 1e6, cell.peak[1] / 1e6)),
            (1, cell.decode),
            (0, cell.prefill),
        )
    )
    peak_off, beyond_off, decode_off = (f"{off(p):+.1%}" for p in (cell.peak, cell.beyond, cell.decode))
    return f"{name} {peak} | {peak_off} | {beyond_off} | {decode} | {decode_off} | {prefill} |"


def page(cells: list[Cell]) -> str:
    """The page: how it was measured, the table, whether the bounds hold, and what was refused."""
    # The measurement itself keeps the cores busy: far above their number, decode is not to be trusted.
    load = psutil.getloadavg()[1]
    machine, blas = machine_class(prepare()), prepare().blas or "no BLAS"
    versions = ", ".join(f"{name} {version}" for name, version in packages().items())
    ran = [cell for cell in cells if not cell.refused]
    held = sum(cell.within for cell in ran)
    refused = sorted({f"- {cell.model} with {cell.kv}: {cell.refused}" for cell in cells if cell.refused})
    bounds = f"{PEAK_BOUND:.0%} of the peak and {DECODE_BOUND:.0%} of decode"
    how = (
        f"`labkit fit` against runs of the bundled models, made by `python benchmarks/fit.py`: each cell is\n"
        f"predicted and measured in turn, {ROUNDS} times; medians, predicted / measured. Of each context\n"
        f"{NEW_TOKENS} tokens are decoded. The bounds are {bounds}:\n"
        f"{held} of {len(ran)} cells are within both. The weights make up most of these peaks, so what lies\n"
        "beyond them is compared too. Prefill has no bound."
    )
    where = f"{machine['chip']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['backend']}"
    reasons = ["Refused when planned:\n", *refused, ""] if refused else []
    parts = ["# Predicted and measured\n", how, "", *table(cells), "", *reasons]
    return (
        "\n".join([*parts, f"Measured on {where} ({blas}), load average {load:.1f}, with {versions}."]) + "\n"
    )


def main() -> None:
    """Measure; write the page; end with 1 where a bound does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("docs/fit.md"))
    parser.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS)
    parser.add_argument("--model", help="measure this one here and print JSON")
    arguments = parser.parse_args()
    if arguments.model:
        sys.stdout.write(json.dumps([asdict(cell) for cell in cells_of(arguments.model, arguments.contexts)]))
        return
    cells = [cell for name in MODELS for cell in measured_apart(name, arguments.contexts)]
    arguments.out.write_text(page(cells), encoding="utf-8")
    sys.stdout.write(page(cells))
    sys.exit(0 if all(cell.refused or cell.within for cell in cells) else 1)


if __name__ == "__main__":
    main()
