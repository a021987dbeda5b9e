"""Quiet-machine probes: is anything else using this machine? Each says value, limit and advice.

A noisy run is stored and labelled. Which probes there are is data, in `labkit.bench.probes`; here they are
read before a run and around every visit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import psutil

from labkit.bench.probes import visit
from labkit.bench.probes.cgroup import CGROUP
from labkit.bench.probes.linux import LINUX
from labkit.bench.probes.macos import MACOS
from labkit.bench.probes.measured import MEASURED
from labkit.bench.probes.nvidia import NVIDIA
from labkit.bench.probes.probe import Machine, Probe, ProbeSpec, find
from labkit.bench.probes.processes import PROCESSES
from labkit.bench.probes.source import Source
from labkit.core.errors import BackendMissing
from labkit.model.backend import installed_build

MIB = 2**20
FOREIGN_CPU_SHARE = 0.10
SWAP_GROWTH_MIB, SWAP_GROWTH_SHARE = 2048.0, 1 / 8
SHORTEST_JUDGED_S = 0.5


@dataclass(frozen=True, slots=True)
class Usage:
    """Cumulative CPU seconds of the machine (busy, stolen included) and of the processes that are ours.

    counters: what else is counted on this machine, by name; see `labkit.bench.probes.visit`.
    """

    machine_busy_s: float
    ours_s: float
    swap_used: int
    counters: Mapping[str, float] = field(default_factory=dict)


def standing_probes(seconds: float = 1.0) -> tuple[Probe, ...]:
    """Busy cores over `seconds`, then every probe that this machine has, as they are before a run.

    The one-minute load average would still hold labkit's own last run, so the load is measured now.
    """
    return tuple(probe for probe in all_probes(seconds) if probe.available)


def all_probes(seconds: float = 1.0) -> tuple[Probe, ...]:
    """The standing probes, also those that are not available on this machine."""
    here = machine()
    busy = _busy_cores(here.cores, seconds)
    return (busy, *read_probes(probe_specs(sys.platform), here))


def probe_specs(platform: str) -> tuple[ProbeSpec, ...]:
    """The probes of a platform as `sys.platform` names it."""
    systems = {"darwin": MACOS, "linux": (*LINUX, *CGROUP)}
    return (*systems.get(platform, ()), *PROCESSES, *NVIDIA)


def read_probes(
    specs: Iterable[ProbeSpec],
    here: Machine,
    read: Callable[[Source], str | None] = lambda source: source.read(),
) -> tuple[Probe, ...]:
    """The findings of some probes, each source read once. What only NVML knows is asked of a GPU in use."""
    texts: dict[Source, str | None] = {}
    found: dict[str, Probe] = {}
    for spec in (*specs, *MEASURED):
        if spec.name in found and found[spec.name].available:
            continue
        if spec.source not in texts:
            unused = spec in NVIDIA and here.gpu is None
            texts[spec.source] = None if unused else read(spec.source)
        found[spec.name] = find(spec, texts[spec.source], here)
    return tuple(found.values())


def machine(environ: Mapping[str, str] = os.environ) -> Machine:
    """What the limits on this machine are scaled by."""
    return Machine(
        cores=psutil.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        pid=os.getpid(),
        gpu=_gpu(environ),
        gpu_by_bus=environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID",
    )


def _gpu(environ: Mapping[str, str]) -> str | None:
    """The first GPU that CUDA may use, where mlx's build can compute on one."""
    try:
        computes = installed_build() in ("cuda", "source") and sys.platform == "linux"
    except BackendMissing:
        return None
    return environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip() or None if computes else None


def _busy_cores(cores: int, seconds: float) -> Probe:
    busy = psutil.cpu_percent(interval=seconds) / 100 * cores
    limit = FOREIGN_CPU_SHARE * cores
    within = busy <= limit
    return Probe("busy_cores", True, busy, limit, within, "stop what else uses the processor", within=within)


def usage(pids: Sequence[int]) -> Usage:
    """CPU use so far; `pids` are the processes that belong to the measurement."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    ours = sum(_process_seconds(pid) for pid in pids)
    swap = psutil.swap_memory().used
    return Usage(sum(times) - idle - guest, ours, swap, visit.read_counters(machine()))


def visit_probes(
    before: Usage, after: Usage, seconds: float, run_began: Usage | None = None
) -> tuple[Probe, ...]:
    """What others and the machine did during a visit of `seconds`.

    Others' share of all cores, growth of swap during the visit and since the run began, and whatever is
    counted on this machine: time that a container's quota, heat or power took away, and other processes on
    the GPU. run_began: the use before the first visit, None for a visit that stands alone.
    """
    cores = psutil.cpu_count() or 1
    foreign = (after.machine_busy_s - before.machine_busy_s) - (after.ours_s - before.ours_s)
    # The system counts processor time in ticks of 10 ms: a short visit cannot be judged.
    judged = seconds >= SHORTEST_JUDGED_S
    share = min(1.0, max(0.0, foreign / (cores * seconds))) if judged else 0.0
    stop, within = "stop what else uses the processor", share <= FOREIGN_CPU_SHARE
    return (
        Probe("foreign_cpu_share", judged, share, FOREIGN_CPU_SHARE, within, stop, within=within),
        _swap_growth("swap_growth_mib", before, after),
        _swap_growth("run_swap_growth_mib", run_began or before, after),
        *(visit.judge(before.counters, after.counters, seconds) if judged else ()),
    )


def _swap_growth(name: str, before: Usage, after: Usage) -> Probe:
    growth = max(0, after.swap_used - before.swap_used) / MIB
    limit = max(SWAP_GROWTH_MIB, psutil.virtual_memory().total / MIB * SWAP_GROWTH_SHARE)
    within = growth <= limit
    return Probe(name, True, growth, limit, within, "use a smaller model or context", within=within)


def _process_seconds(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system
