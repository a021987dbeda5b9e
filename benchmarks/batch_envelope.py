"""How far a row of a batch is from the row alone, on SmolLM2 in f32 with this machine's BLAS, and in bf16.

Run: python benchmarks/batch_envelope.py [--out docs/batch-numerics.md] [--tokens 8]

Each row's log-probabilities are compared with those of a session of its own, token by token; and the codes
that `affine:8` writes in the first forward that the rows share with those that the row writes alone.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

import labkit
from labkit.engine.method import Saving
from labkit.engine.model import Model
from labkit.engine.session import Session
from labkit.lab.measuring.provenance import machine_class
from labkit.model.backend import prepare

SHAPES = {
    "2 equal": (64,) * 2,
    "4 equal": (64,) * 4,
    "8 equal": (64,) * 8,
    "2 padded": (64, 50),
    "4 padded": (64, 50, 71, 40),
    "8 padded": (64, 50, 71, 40, 66, 45, 58, 70),
    "4 by rows": (90, 5, 9, 12),
}
OPTIONS: dict[str, Any] = {"stop_tokens": (), "logprobs": True}
HEAD = """# Rows of a batch against the rows alone

SmolLM2-135M, {cores} cores, {chip}, f32 on {blas}. Made by `python benchmarks/batch_envelope.py`.

In 16-bit weights on a CPU, and unpadded in f32 on the reference BLAS, every row is what it is alone, bit
for bit; the conformance suite holds that. An optimised f32 BLAS sums in an order that depends on the number
of rows; what that changes is measured here. The KV codes are those that the first forward in common wrote,
and no others. A row that is not padded is held to 0.1% of them, by one step; a code that falls to the other
side moves the codes of later layers too.

| rows | KV | tokens equal | log-probabilities differ | by at most (nats) | codes differ | by steps |
|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Found:
    """One shape and scheme. differing: share of (row, token) whose log-probabilities are not equal.

    codes: share of the codes that differ. steps: by how many, at most.
    """

    shape: str
    kv: str
    tokens_equal: bool
    differing: float
    gap: float
    codes: float | None
    steps: int | None

    def row(self) -> str:
        """It as a line of the table."""
        codes = "" if self.codes is None else f"{100 * self.codes:.4f}%"
        steps = "" if self.steps is None else str(self.steps)
        equal = "yes" if self.tokens_equal else "no"
        cells = (self.shape, self.kv, equal, f"{100 * self.differing:.0f}%", f"{self.gap:.1e}", codes, steps)
        return f"| {' | '.join(cells)} |\n"


def prompts_of(lengths: Sequence[int]) -> list[list[int]]:
    """Seeded token ids."""
    source = random.Random(0)
    return [[source.randrange(100, 40_000) for _ in range(length)] for length in lengths]


def compare(model: Model, shape: str, kv: str, tokens: int) -> Found:
    """Run a shape in a batch and every row alone."""
    prompts = prompts_of(SHAPES[shape])
    with model.batch(policy="prefill-first", kv=kv, **OPTIONS) as batch:
        rows = [batch.session(prompt, max_tokens=tokens) for prompt in prompts]
        found: list[list[Any]] = [[] for _ in rows]
        codes: list[np.ndarray] = []
        while batch.turn():
            for steps, row in zip(found, rows, strict=True):
                while (step := row.take()) is not None:
                    steps.extend([step] if step.tokens else [])
            if kv != "bf16" and not codes and all(len(steps) == 1 for steps in found):
                codes = [written(row, len(p)) for row, p in zip(rows, prompts, strict=True)]
    alone = [list(model.session(p, kv=kv, max_tokens=tokens, **OPTIONS).steps()) for p in prompts]
    want = [[step for step in steps if step.tokens] for steps in alone]
    pairs = [(a, b) for got, its in zip(found, want, strict=True) for a, b in zip(got, its, strict=True)]
    gaps = [float(np.abs(np.array(a.logprobs) - np.array(b.logprobs)).max()) for a, b in pairs]
    equal = all(a.tokens == b.tokens for a, b in pairs)
    share, most = _codes(codes, list(lone_codes(model, kv, prompts))) if codes else (None, None)
    return Found(shape, kv, equal, float(np.mean([gap > 0 for gap in gaps])), max(gaps), share, most)


def written(session: Session, position: int) -> np.ndarray:
    """The bytes of the codes that a session's caches hold at a position."""
    arrays = cast(Saving, cast(Any, session)._execution).freeze().arrays.values()
    words = [a[:, :, position - 1, :] for a in arrays if a.dtype == np.uint32 and a.ndim == 4]
    return np.concatenate([np.ascontiguousarray(w).view(np.uint8).ravel() for w in words])


def lone_codes(model: Model, kv: str, prompts: Sequence[Sequence[int]]) -> Iterator[np.ndarray]:
    """The codes of every row's first decode step, alone."""
    for prompt in prompts:
        session = model.session(prompt, kv=kv, max_tokens=4, **OPTIONS)
        session.run(until=lambda step: bool(step.tokens))
        yield written(session, len(prompt))


def _codes(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> tuple[float, int]:
    far = np.abs(np.concatenate(got).astype(int) - np.concatenate(want).astype(int))
    return float(np.mean(far > 0)), int(far.max())


def page(found: Sequence[Found]) -> str:
    """The table as Markdown."""
    machine, backend = machine_class(prepare()), prepare()
    head = HEAD.format(cores=machine["cores"], chip=machine["chip"], blas=backend.blas)
    return head + "".join(each.row() for each in found)


def main() -> int:
    """Measure and print; 1 where unpadded rows differ in over 0.1% of codes, or by over a step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tokens", type=int, default=8)
    asked = parser.parse_args()
    model = labkit.load("smollm2")
    found = [compare(model, shape, kv, asked.tokens) for kv in ("bf16", "affine:8") for shape in SHAPES]
    text = page(found)
    sys.stdout.write(text)
    if asked.out:
        asked.out.write_text(text)
    unpadded = [each for each in found if "padded" not in each.shape]
    return int(any((each.codes or 0) > 1e-3 or (each.steps or 0) > 1 for each in unpadded))


if __name__ == "__main__":
    raise SystemExit(main())
