"""Quiet-machine probes: is anything else using this machine? Each says value, limit and advice.

The limits are those of the reference system, scaled by cores. A noisy run is stored and labelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import psutil

MIB = 2**20
LOAD_PER_CORE = 8 / 12
SWAP_LIMIT_MIB = 512
FREE_MEMORY_SHARE = 0.35
FOREIGN_CPU_SHARE = 0.10
SHORTEST_JUDGED_S = 0.5


@dataclass(frozen=True, slots=True)
class Probe:
    """One finding. available: whether this machine can tell at all; ok is true where it cannot."""

    name: str
    available: bool
    value: float
    limit: float
    ok: bool
    advice: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Usage:
    """Cumulative CPU seconds of the machine (busy, stolen included) and of the processes that are ours."""

    machine_busy_s: float
    ours_s: float
    swap_used: int


def standing_probes() -> tuple[Probe, ...]:
    """Load, swap and free memory, as they are before a run."""
    cores = psutil.cpu_count() or 1
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    load_limit = max(1.0, LOAD_PER_CORE * cores)
    load = psutil.getloadavg()[0]
    free = memory.available / memory.total
    swapped = swap.used / MIB
    return (
        Probe(
            "load_1m", True, load, load_limit, load <= load_limit, "close other programs, or wait a minute"
        ),
        Probe(
            "swap_used_mib",
            True,
            swapped,
            SWAP_LIMIT_MIB,
            swapped <= SWAP_LIMIT_MIB,
            "free memory until swap is empty",
        ),
        Probe(
            "memory_free_share",
            True,
            free,
            FREE_MEMORY_SHARE,
            free >= FREE_MEMORY_SHARE,
            "close programs that hold memory",
        ),
    )


def usage(pids: Sequence[int]) -> Usage:
    """CPU use so far; `pids` are the processes that belong to the measurement."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    ours = sum(_process_seconds(pid) for pid in pids)
    return Usage(sum(times) - idle - guest, ours, psutil.swap_memory().used)


def visit_probes(before: Usage, after: Usage, seconds: float) -> tuple[Probe, ...]:
    """What others did during a visit of `seconds`: their share of all cores, and growth of swap."""
    cores = psutil.cpu_count() or 1
    foreign = (after.machine_busy_s - before.machine_busy_s) - (after.ours_s - before.ours_s)
    # The system counts processor time in ticks of 10 ms: a short visit cannot be judged.
    judged = seconds >= SHORTEST_JUDGED_S
    share = min(1.0, max(0.0, foreign / (cores * seconds))) if judged else 0.0
    growth = max(0, after.swap_used - before.swap_used) / MIB
    limit = max(2048.0, psutil.virtual_memory().total / MIB / 8)
    return (
        Probe(
            "foreign_cpu_share",
            judged,
            share,
            FOREIGN_CPU_SHARE,
            share <= FOREIGN_CPU_SHARE,
            "stop what else uses the processor",
        ),
        Probe("swap_growth_mib", True, growth, limit, growth <= limit, "use a smaller model or context"),
    )


def _process_seconds(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system
