"""Ceilings: what this machine does at most in this process, measured. Knows no model and no workload."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

# A ceiling is the best of RUNS runs, or of those that fit into SECONDS.
_RUNS, _SECONDS = 10, 0.15
# Sides of the square products; a larger one is tried while the last took less than QUICK seconds.
_SIDES: Mapping[bool, tuple[int, ...]] = {True: (512, 1024, 2048), False: (2048, 4096, 8192)}
_QUICK = 0.02
# 256 MiB of float32 is read once on a CPU; a GPU reads 16 times as much in one evaluation, so that
# launching it costs nothing beside it.
_READ_SIDE = 8192
_LINKS: Mapping[bool, int] = {True: 1, False: 16}


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Measured on this machine in this process: flops_per_s of a large product, bytes_per_s of a read."""

    flops_per_s: float
    bytes_per_s: float
    dtype: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure_ceilings(dtype: str, clock: Callable[[], float] = time.perf_counter) -> Ceilings:
    """The fastest square product in `dtype`, and the fastest of several ways to move 256 MiB and more.

    Takes one to two seconds on a CPU; each way is the best of up to 10 runs.
    """
    import mlx.core as mx

    on_cpu = mx.default_device() == mx.Device(mx.cpu)
    flops = _product_rate(dtype, _SIDES[on_cpu], clock)
    ways = _device_reads(_LINKS[on_cpu]) + (_host_reads() if on_cpu else [])
    moved = max(nbytes / _best(work, clock) for nbytes, work in ways)
    ways.clear()
    mx.clear_cache()
    return Ceilings(flops, moved, dtype)


def _product_rate(dtype: str, sides: tuple[int, ...], clock: Callable[[], float]) -> float:
    import mlx.core as mx

    rate = 0.0
    for side in sides:
        a = mx.random.normal((side, side)).astype(getattr(mx, dtype))
        mx.eval(a)
        seconds = _best(lambda a=a: mx.eval(a @ a), clock)
        rate = max(rate, 2.0 * side**3 / seconds)
        if seconds > _QUICK:
            break
    return rate


def _device_reads(links: int) -> list[tuple[int, Callable[[], None]]]:
    """Bytes moved and the work that moves them: reductions, matrix-vector products, copies in a chain."""
    import mlx.core as mx

    side = _READ_SIDE
    table = mx.arange(side * side, dtype=mx.float32).reshape(side, side)
    vector = mx.ones((side,))
    mx.eval(table, vector)

    def copies() -> None:
        copied = table
        for _ in range(links):
            copied = copied + 1
        mx.eval(copied)

    return [
        (links * table.nbytes, lambda: mx.eval([mx.max(table) for _ in range(links)])),
        (links * table.nbytes, lambda: mx.eval([table @ vector for _ in range(links)])),
        (2 * links * table.nbytes, copies),
    ]


def _host_reads() -> list[tuple[int, Callable[[], None]]]:
    """A reduction by every core at once, since mlx reduces on one and the reference BLAS is no faster."""
    parts = np.array_split(np.ones(_READ_SIDE**2, np.float32), os.cpu_count() or 1)

    def reduce() -> None:
        with ThreadPoolExecutor(len(parts)) as pool:
            list(pool.map(np.max, parts))

    return [(4 * _READ_SIDE**2, reduce)]


def _best(work: Callable[[], None], clock: Callable[[], float]) -> float:
    work()
    times: list[float] = []
    while len(times) < _RUNS and sum(times) < _SECONDS:
        started = clock()
        work()
        times.append(clock() - started)
    return min(times)
