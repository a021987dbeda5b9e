"""Quiet-machine probes: is anything else using this machine? Each says value, limit and advice.

A noisy run is stored and labelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import psutil

MIB = 2**20
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


def standing_probes(seconds: float = 1.0) -> tuple[Probe, ...]:
    """Busy cores over `seconds`, swap and free memory, as they are before a run.

    The one-minute load average would still hold labkit's own last run, so the load is measured now.
    """
    cores = psutil.cpu_count() or 1
    busy = psutil.cpu_percent(interval=seconds) / 100 * cores
    memory, swap = psutil.virtual_memory(), psutil.swap_memory().used / MIB
    free, limit = memory.available / memory.total, FOREIGN_CPU_SHARE * cores
    close = "close programs that hold memory"
    return (
        Probe("busy_cores", True, busy, limit, busy <= limit, "stop what else uses the processor"),
        Probe("swap_used_mib", True, swap, SWAP_LIMIT_MIB, swap <= SWAP_LIMIT_MIB, close),
        Probe("memory_free_share", True, free, FREE_MEMORY_SHARE, free >= FREE_MEMORY_SHARE, close),
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
    stop, smaller = "stop what else uses the processor", "use a smaller model or context"
    return (
        Probe("foreign_cpu_share", judged, share, FOREIGN_CPU_SHARE, share <= FOREIGN_CPU_SHARE, stop),
        Probe("swap_growth_mib", True, growth, limit, growth <= limit, smaller),
    )


def _process_seconds(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system
