"""Rows of the batch engine against a session and mlx-lm's BatchGenerator, a few decode steps at a time.

Run: python benchmarks/batch_interleaved.py [--pairs 64] [--steps 6] [--out FILE.md]

Two sides decode the same prompts in one process. A pair is a block of steps of each, in random order, from an
idle device to an idle device, so that both meet the same second of a noisy machine; visits that take seconds
each cannot tell 1% here. The ratio has the exact signed-rank interval of every labkit bench.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import labkit
from labkit.bench.statistics import hodges_lehmann, walsh_interval
from labkit.engine.model import Model
from labkit.engine.upstream_batch import UpstreamRows
from labkit.lab.measuring.provenance import machine_class
from labkit.model.backend import prepare

PROMPT, CHUNK = 64, 256
# rows, what they are compared with, the bound of the interval's lower end, and pairs for each one asked for.
CASES = (
    (1, "session", 0.99, 4),
    (1, "BatchGenerator", 1.0, 1),
    (4, "BatchGenerator", 0.98, 1),
    (8, "BatchGenerator", 0.98, 1),
)
# Decodes one token of every row.
Decode = Callable[[], None]


def prompts(rows: int) -> list[list[int]]:
    """Seeded token ids."""
    source = random.Random(rows)
    return [[source.randrange(100, 40_000) for _ in range(PROMPT)] for _ in range(rows)]


@contextmanager
def session(model: Model, rows: int, tokens: int) -> Iterator[Decode]:
    """Of one row: a session without a batch."""
    with model.session(prompts(rows)[0], max_tokens=tokens, stop_tokens=(), prefill_chunk=CHUNK) as opened:
        yield lambda: _until_tokens(1, lambda: len(getattr(opened.step(), "tokens", ())))


@contextmanager
def batch(model: Model, rows: int, tokens: int) -> Iterator[Decode]:
    """Rows of the batch engine, each with a reader."""
    options: dict[str, Any] = {"max_tokens": tokens, "stop_tokens": (), "prefill_chunk": CHUNK}
    with model.batch(cap=rows, policy="prefill-first", **options) as opened:
        held = [opened.session(prompt) for prompt in prompts(rows)]

        def turn() -> int:
            opened.turn()
            steps = [session.take() for session in held if session.unread]
            return sum(len(step.tokens) for step in steps if step is not None)

        yield lambda: _until_tokens(rows, turn)


@contextmanager
def upstream(model: Model, rows: int, tokens: int) -> Iterator[Decode]:
    """Rows of mlx-lm's BatchGenerator."""
    opened = UpstreamRows(model.graph, CHUNK, rows)
    for index, prompt in enumerate(prompts(rows)):
        opened.insert(index, prompt, tokens)
    try:
        yield lambda: _until_tokens(rows, lambda: len(opened.advance()))
    finally:
        opened.close()


SIDES = {"session": session, "BatchGenerator": upstream}


def _until_tokens(rows: int, work: Callable[[], int]) -> None:
    """Work until every row has a token in one unit; prompts are read meanwhile."""
    while work() < rows:
        pass


def _idle() -> None:
    import mlx.core as mx
    from mlx_lm.generate import generation_stream

    mx.synchronize()
    mx.synchronize(generation_stream)


def _block(decode: Decode, steps: int) -> float:
    """Seconds a step, all that was queued included."""
    _idle()
    started = time.perf_counter()
    for _ in range(steps):
        decode()
    _idle()
    return (time.perf_counter() - started) / steps


def logs_of(model: Model, rows: int, other: str, pairs: int, steps: int) -> list[float]:
    """log(other's seconds / the batch engine's) of each pair, above 0 where the batch engine is faster."""
    tokens, coin = steps * (pairs + 4), random.Random(rows)
    with batch(model, rows, tokens) as ours, SIDES[other](model, rows, tokens) as theirs:
        sides = {"ours": ours, "theirs": theirs}
        found = []
        for pair in range(pairs + 2):
            seconds = {name: _block(sides[name], steps) for name in coin.sample(tuple(sides), 2)}
            if pair >= 2:
                found.append(math.log(seconds["theirs"] / seconds["ours"]))
    return found


def page(rows: list[tuple[int, str, float, list[float]]], steps: int) -> str:
    """The ratios, as Markdown."""
    machine = machine_class(prepare())
    lines = [
        "# Rows of the batch engine, step beside step",
        "",
        (
            f"Decode of smollm2 in f32 at {PROMPT} prompt tokens, all rows equally long: the batch engine's "
            f"tokens a second over the other side's. A pair is {steps} steps of each in random order, in one "
            f"process; 95% signed-rank intervals. {machine['cores']} cores, {machine['chip']}. Made by "
            "`python benchmarks/batch_interleaved.py`."
        ),
        "",
        "Two sides in one process share its threads. Each in a process of its own is the experiment",
        "`batch-row-vs-mlx-lm`, and those of its kind, in `benchmarks/`.",
        "",
        "| rows | against | ratio | 95% interval | pairs | bound of its lower end |",
        "|---|---|---|---|---|---|",
    ]
    for count, other, bound, logs in rows:
        low, high = (math.exp(float(end)) for end in walsh_interval(logs))
        ratio = math.exp(float(hodges_lehmann(logs)))
        shown = f"{ratio:.3f}x | {low:.3f} to {high:.3f} | {len(logs)} | {bound:g}"
        lines.append(f"| {count} | {other} | {shown} ({'met' if low >= bound else 'not met'}) |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, print, and write the page where `--out` says so. Ends with 1 where a bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=64)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    model = labkit.load("smollm2")
    rows = []
    for count, other, bound, times in CASES:
        logs = logs_of(model, count, other, times * asked.pairs, asked.steps)
        rows.append((count, other, bound, logs))
        sys.stdout.write(page(rows[-1:], asked.steps).splitlines()[-1] + "\n")
    text = page(rows, asked.steps)
    if asked.out:
        asked.out.write_text(text)
    return int(any(math.exp(float(walsh_interval(logs)[0])) < bound for _, _, bound, logs in rows))


if __name__ == "__main__":
    raise SystemExit(main())
