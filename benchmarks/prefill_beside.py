"""How much a long prefill holds up the rows that decode beside it: p99 of their inter-token latency, paired.

Run: python benchmarks/prefill_beside.py [--pairs 8] [--prompt 2000] [--kv bf16] [--out FILE.json]

A pair is two runs of four rows in random order: undisturbed, and with a long prompt that arrives while they
decode. The ratio of the two p99 has the exact signed-rank interval of every labkit bench. The bound is 3.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

import labkit
from labkit.bench.statistics import hodges_lehmann, walsh_interval
from labkit.engine.batching.session import BatchedSession
from labkit.engine.model import Model
from labkit.lab.measuring.provenance import machine_class
from labkit.model.backend import prepare

ROWS, ROW_PROMPT, STEPS, BOUND = 4, 64, 48, 3.0
COLUMNS = ("undisturbed p50", "undisturbed p99", "beside p50", "beside p99")


def prompt_of(length: int, seed: int) -> list[int]:
    """Seeded token ids."""
    source = random.Random(seed)
    return [source.randrange(100, 40_000) for _ in range(length)]


def gaps_of(model: Model, kv: str, long_prompt: int, seed: int) -> list[float]:
    """Seconds between tokens of four rows, from the arrival of a prompt to its first token.

    long_prompt: its tokens; 0 for none, and then over `STEPS` steps.
    """
    with model.batch(kv=kv, stop_tokens=()) as batch:
        most = long_prompt or STEPS + 16
        rows = [batch.session(prompt_of(ROW_PROMPT, seed + i), max_tokens=most) for i in range(ROWS)]
        while min(len(row.tokens) for row in rows) < 8:
            _read(batch.turn(), rows)
        since = model.clock()
        late = batch.session(prompt_of(long_prompt, seed), max_tokens=4) if long_prompt else None
        while (len(late.tokens) < 3) if late else (len(rows[0].tokens) < 8 + STEPS):
            _read(batch.turn(), rows)
        for row in rows:
            row.cancel()
        ended = [t for t in batch.outcome().timings if t.id in {row.name for row in rows}]
        start_s = since - (model.clock() - batch.queue.now_s)
        return [
            late_s - early_s for t in ended for early_s, late_s in pairwise(t.token_s) if late_s > start_s
        ]


def _read(worked: bool, rows: list[BatchedSession]) -> None:
    assert worked
    for row in rows:
        while row.unread:
            row.take()


def pairs(model: Model, kv: str, count: int, long_prompt: int, seed: int) -> Iterator[dict[str, float]]:
    """Percentiles of both runs of each pair, in seconds."""
    coin = random.Random(seed)
    for pair in range(count):
        found: dict[str, float] = {}
        for name in coin.sample(("undisturbed", "beside"), 2):
            gaps = gaps_of(model, kv, long_prompt if name == "beside" else 0, 1000 * pair)
            p50, p99 = np.percentile(gaps, [50, 99])
            found |= {f"{name} p50": float(p50), f"{name} p99": float(p99)}
        sys.stdout.write(f"pair {pair + 1}: {_in_ms(found)}\n")
        yield found


def _in_ms(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {1000 * found[name]:.0f} ms" for name in COLUMNS)


def page(found: list[dict[str, float]], prompt: int, kv: str) -> str:
    """The pairs and their ratio, as Markdown."""
    logs = [math.log(pair["beside p99"] / pair["undisturbed p99"]) for pair in found]
    low, high = (math.exp(float(end)) for end in walsh_interval(logs))
    ratio = math.exp(float(hodges_lehmann(logs)))
    machine = machine_class(prepare())
    lines = [
        f"# A {prompt:,}-token prefill beside {ROWS} rows that decode",
        "",
        (
            f"p99 of the rows' inter-token latency against the undisturbed one: **{ratio:.2f}x "
            f"[{low:.2f}, {high:.2f}]** (bound {BOUND:g}x), {len(found)} pairs, smollm2, kv={kv}, "
            f"{machine['cores']} cores, {machine['chip']}. Made by `python benchmarks/prefill_beside.py`."
        ),
        "",
        "| pair | " + " | ".join(f"{name} (ms)" for name in COLUMNS) + " |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    for index, pair in enumerate(found):
        lines.append(f"| {index + 1} | " + " | ".join(f"{1000 * pair[name]:.0f}" for name in COLUMNS) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, print, and write the page where `--out` says so. Ends with 1 where the bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kv", default="bf16")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=2000)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    model = labkit.load("smollm2")
    gaps_of(model, asked.kv, 300, 7)
    found = list(pairs(model, asked.kv, asked.pairs, asked.prompt, 0))
    text = page(found, asked.prompt, asked.kv)
    sys.stdout.write(text)
    if asked.out:
        asked.out.write_text(text)
    logs = [math.log(pair["beside p99"] / pair["undisturbed p99"]) for pair in found]
    return int(math.exp(float(walsh_interval(logs)[1])) > BOUND)


if __name__ == "__main__":
    raise SystemExit(main())
