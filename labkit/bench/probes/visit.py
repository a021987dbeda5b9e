"""Visit: what is counted before and after a visit, by files and NVML, and how the difference is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labkit.bench.probes import cgroup, nvidia
from labkit.bench.probes.nvml import NVML
from labkit.bench.probes.probe import Machine, Probe, Role
from labkit.bench.probes.source import Files, Source, by_path

THROTTLE = Files("/sys/devices/system/cpu", ("cpu[0-9]*/thermal_throttle/package_throttle_total_time_ms",))
GROUPS = cgroup.Groups("cpu", ("cpu.stat",))


@dataclass(frozen=True, slots=True)
class VisitSpec:
    """counter: what grows. over: the counter it is a share of, None for the seconds of the visit.

    level: whether the counter is what there is at the end instead of what was added. Where there are several
    of a kind (groups, packages) each has counters of its own, `counter:which`, and the worst is judged.
    """

    name: str
    counter: str
    limit: float
    advice: str
    over: str | None = None
    level: bool = False
    role: Role = "judges"


VISIT = (
    VisitSpec(
        "cgroup_throttled_share",
        "cgroup_throttled",
        0.05,
        "set OMP_NUM_THREADS to the CPU quota, or raise it",
        over="cgroup_periods",
    ),
    VisitSpec("package_throttled_share", "package_throttled_s", 0.05, "let it cool, free its air vents"),
    VisitSpec("gpu_slowed_share", "gpu_slowed_s", 0.01, "mend the GPU's cooling or power"),
    VisitSpec("gpu_power_capped_share", "gpu_power_capped_s", 0.05, "the card's own limit", role="warns"),
    VisitSpec("gpu_slowdown", "gpu_slowdown", 0, "mend the GPU's cooling or power", level=True),
    VisitSpec(
        "gpu_other_processes", "gpu_other_processes", 0, "stop what else computes on the GPU", level=True
    ),
)


def read_counters(
    machine: Machine, throttle: Source = THROTTLE, groups: Source = GROUPS, gpus: Source = NVML
) -> dict[str, float]:
    """Every counter that this machine has; NVML is asked only where mlx computes on its GPU."""
    found: dict[str, float] = {}
    if (text := throttle.read()) is not None:
        found |= package_throttling(text)
    if (text := groups.read()) is not None:
        found |= group_throttling(text)
    if machine.gpu is not None and (text := gpus.read()) is not None:
        try:
            found |= nvidia.counters(text, machine)
        except (ValueError, LookupError, TypeError, AttributeError):
            return found
    return found


def package_throttling(text: str) -> dict[str, float]:
    """Seconds for which each core's package was slowed down so far (Intel; kernel 5.8 and later)."""
    times = {path.partition("/")[0]: value for path, value in by_path(text) if value.isdecimal()}
    return {f"package_throttled_s:{cpu}": int(value) / 1000 for cpu, value in times.items()}


def group_throttling(text: str) -> dict[str, float]:
    """Periods and throttled periods of every group so far."""
    found: dict[str, float] = {}
    for group, (periods, throttled) in cgroup.throttling(text).items():
        found |= {f"cgroup_periods:{group}": periods, f"cgroup_throttled:{group}": throttled}
    return found


def judge(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> tuple[Probe, ...]:
    """One finding for every counter that was read before and after and can be judged."""
    found = (_judge(spec, before, after, seconds) for spec in VISIT)
    return tuple(probe for probe in found if probe is not None)


def _judge(
    spec: VisitSpec, before: Mapping[str, float], after: Mapping[str, float], seconds: float
) -> Probe | None:
    kinds = [name.removeprefix(spec.counter) for name in before if name.partition(":")[0] == spec.counter]
    values = [value for kind in kinds if (value := _value(spec, kind, before, after, seconds)) is not None]
    if not values:
        return None
    value = max(values)
    within = value <= spec.limit
    ok = within or spec.role != "judges"
    return Probe(spec.name, True, value, spec.limit, ok, spec.advice, spec.role, within)


def _value(
    spec: VisitSpec, kind: str, before: Mapping[str, float], after: Mapping[str, float], seconds: float
) -> float | None:
    """What is judged of one of its kind; None where a counter of it is missing or nothing has passed."""
    names = [name + kind for name in (spec.counter, spec.over) if name]
    if not all(name in before and name in after for name in names):
        return None
    if spec.level:
        return after[names[0]]
    growth = [max(0.0, after[name] - before[name]) for name in names]
    whole = growth[1] if spec.over else seconds
    return min(1.0, growth[0] / whole) if whole > 0 else None
