"""Labkit's own overheads: what `import labkit` takes, and what a session adds to each step.

Run: python benchmarks/overheads.py. The bounds are 150 ms, and 200 microseconds or 2% of a token, whichever
is larger.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace

import labkit
from labkit.core.request import Request
from labkit.core.step import Step
from labkit.engine.model import Model
from labkit.kv.base import kv_bytes
from labkit.plan.plan import Plan

STEPS, ROUNDS = 4000, 7
IMPORT = "import time; s = time.perf_counter(); import labkit; print(time.perf_counter() - s)"


class Nothing:
    """An execution whose steps cost nothing."""

    def __init__(self) -> None:
        self._steps = [Step("decode", (token,), None, 0.0, 0, 1, 1) for token in range(300, 2300)]
        self._at = 0

    def advance(self) -> Step:
        self._at += 1
        return self._steps[self._at % len(self._steps)]

    def verify(self) -> None:
        pass

    def close(self) -> None:
        pass


class Empty(Model):
    """A model whose sessions run on nothing."""

    def start(self, plan: Plan, request: Request) -> Nothing:
        return Nothing()


def per_step(make: Callable[[], Callable[[], object]]) -> float:
    """Median over rounds of the microseconds that one call of what `make` makes takes."""
    rounds = []
    for _ in range(ROUNDS):
        call = make()
        started = time.perf_counter()
        for _ in range(STEPS):
            call()
        rounds.append((time.perf_counter() - started) / STEPS * 1e6)
    return statistics.median(rounds)


def import_ms() -> float:
    """Median milliseconds of `import labkit` in fresh processes."""
    command = [sys.executable, "-c", IMPORT]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(ROUNDS)]
    return statistics.median(float(run.stdout) for run in runs) * 1e3


def main() -> None:
    """Measure and print."""
    sys.stdout.write(f"import labkit: {import_ms():.1f} ms\n")
    model = labkit.load("smollm2")
    # Imported here: labkit.load has put the BLAS before mlx.
    import mlx.core as mx

    real = model.session([1, 2, 3], kv="affine:8", max_tokens=2)
    scheme = model.engine.scheme(real.plan)
    caches = scheme.make(model.graph)
    model.graph(mx.array([[1, 2, 3]]), cache=caches)
    scheme.settle(caches)
    empty = Empty(**{field.name: getattr(model, field.name) for field in fields(model)})
    long = replace(empty, profile=replace(model.profile, context_length=10 * STEPS))
    session = per_step(lambda: long.session([1], max_tokens=2 * STEPS, stop_tokens=()).step)
    counting = per_step(lambda: lambda: kv_bytes(caches))
    sys.stdout.write(f"Session.step around nothing, its text included: {session:.1f} us a step\n")
    sys.stdout.write(f"kv_bytes of {len(caches)} quantized caches: {counting:.1f} us a step\n")
    sys.stdout.write(f"together: {session + counting:.1f} us of the 200 allowed\n")


if __name__ == "__main__":
    main()
