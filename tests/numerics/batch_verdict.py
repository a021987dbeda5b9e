"""Verdict: how far the rows of one cell are from what they are alone and from mlx-lm's BatchGenerator.

Run by itself it judges the cells that its input lists, in f32 on whatever BLAS its environment asks for.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import mlx.core as mx

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, order=True)
class Cell:
    """One combination, each part by its name in `batch_cases`."""

    scheme: str
    architecture: str
    shape: str

    def __str__(self) -> str:
        return f"{self.scheme} {self.architecture} {self.shape}"


@dataclass(frozen=True)
class Verdict:
    """tokens: whether all are the row's alone. from_alone: the largest difference of a log-probability.

    upstream_tokens, from_upstream: the same against BatchGenerator, None for a scheme that it has not.
    rows: of each forward, by row and token.
    """

    tokens: bool
    from_alone: float
    rows: list[list[int]]
    upstream_tokens: bool | None = None
    from_upstream: float | None = None


def judge(cell: Cell, dtype: mx.Dtype, folder: Path) -> Verdict:
    """Run a cell in a batch, alone and, where it can, upstream."""
    from tests.numerics import batch_cases as cases

    model, shape = cases.model_of(cell.architecture, dtype), cases.SHAPES[cell.shape]
    kv = cases.kv_of(cell.scheme, folder)
    got, want = cases.run_in_batch(model, kv, shape), cases.run_alone(model, kv, shape)
    rows = [[step.rows for step in row] for row in got]
    mine = [[(step.tokens[0], step.logprobs[0]) for step in row] for row in got]
    tokens, gap = _gap(mine, [[(step.tokens[0], step.logprobs[0]) for step in row] for row in want])
    if cell.scheme != "bf16":
        return Verdict(tokens, gap, rows)
    return Verdict(tokens, gap, rows, *_gap(mine, cases.run_upstream(model, shape)))


def judge_on(blas: str, cells: Sequence[Cell]) -> dict[str, Verdict]:
    """Judge cells in f32 in a process of its own with another BLAS; by the cell's text."""
    return _judged_on(blas, tuple(cells))


@cache
def _judged_on(blas: str, cells: tuple[Cell, ...]) -> dict[str, Verdict]:
    import os
    import subprocess

    asked = json.dumps([asdict(cell) for cell in cells])
    command = [sys.executable, "-m", "tests.numerics.batch_verdict"]
    environ = {**os.environ, "LABKIT_BLAS": blas}
    done = subprocess.run(
        command, input=asked, env=environ, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["blas"] == blas
    return {name: Verdict(**verdict) for name, verdict in said["verdicts"].items()}


def _gap(got: Sequence[Sequence[Any]], want: Sequence[Sequence[Any]]) -> tuple[bool, float]:
    """Whether all tokens are equal, and the largest difference of a log-probability, NaN if not."""
    import mlx.core as mx

    if [[token for token, _ in row] for row in got] != [[token for token, _ in row] for row in want]:
        return False, float("nan")
    pairs = [pair for rows in zip(got, want, strict=True) for pair in zip(*rows, strict=True)]
    return True, max(float(mx.abs(mine - its).max().item()) for (_, mine), (_, its) in pairs)  # type: ignore[arg-type]


def main() -> None:
    """Read cells from the input, write their verdicts."""
    from labkit.model.backend import prepare

    backend = prepare()
    import mlx.core as mx

    with tempfile.TemporaryDirectory() as folder:
        cells = [Cell(**cell) for cell in json.load(sys.stdin)]
        verdicts = {str(cell): asdict(judge(cell, mx.float32, Path(folder))) for cell in cells}
    sys.stdout.write(json.dumps({"blas": backend.blas, "verdicts": verdicts}))


if __name__ == "__main__":
    main()
