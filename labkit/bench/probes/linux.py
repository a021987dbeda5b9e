"""Linux: memory, load, pressure, clocks, heat and power, as `/proc` and `/sys` give them (proc(5), sysfs).

A server, container or virtual machine lacks many of these files: such a probe is not available there.
"""

from __future__ import annotations

import re
from collections import Counter

from labkit.bench.probes.probe import Machine, ProbeSpec, Reading, fixed
from labkit.bench.probes.source import File, Files, by_path

_CPU = "/sys/devices/system/cpu"
MEMORY = File("/proc/meminfo")
LOAD = File("/proc/loadavg")
CLOCKS = Files(
    _CPU,
    (
        "cpu[0-9]*/cpufreq/scaling_governor",
        "cpu[0-9]*/cpufreq/scaling_driver",
        "cpu[0-9]*/cpufreq/scaling_max_freq",
        "cpu[0-9]*/cpufreq/cpuinfo_max_freq",
        "cpu[0-9]*/cpufreq/scaling_cur_freq",
    ),
)
TURBO = Files(_CPU, ("intel_pstate/no_turbo", "cpufreq/boost"))
HEAT = Files(
    "/sys/class/thermal",
    (
        "thermal_zone*/type",
        "thermal_zone*/temp",
        "thermal_zone*/trip_point_*_type",
        "thermal_zone*/trip_*_temp",
    ),
)
POWER = Files("/sys/class/power_supply", ("*/type", "*/scope", "*/status", "*/online"))
PRESSURE = {kind: File(f"/proc/pressure/{kind}") for kind in ("cpu", "memory", "io")}
_MAINS = ("Mains", "USB", "Wireless")


def _meminfo(text: str) -> dict[str, int]:
    """Every `Name: n kB` of /proc/meminfo, in KiB."""
    return {name: int(size) for name, size in re.findall(r"^(\w+):\s+(\d+) kB", text, re.M)}


def memory_free(text: str, _machine: Machine) -> Reading | None:
    """MemAvailable as a share of MemTotal: what can be had without swapping (kernel 3.14 and later)."""
    sizes = _meminfo(text)
    return Reading(sizes["MemAvailable"] / sizes["MemTotal"])


def swap_used(text: str, _machine: Machine) -> Reading | None:
    """SwapTotal less SwapFree in MiB."""
    sizes = _meminfo(text)
    return Reading((sizes["SwapTotal"] - sizes["SwapFree"]) / 1024)


def load_average(text: str, _machine: Machine) -> Reading | None:
    """The one-minute load of /proc/loadavg."""
    found = re.match(r"(\d+\.\d+) \d+\.\d+ \d+\.\d+ \d+/\d+ \d+", text)
    return Reading(float(found[1])) if found else None


def stalled(text: str, _machine: Machine) -> Reading | None:
    """/proc/pressure: the share of the last 10 s in which some task waited."""
    found = re.search(r"^some avg10=(\d+\.\d+)", text, re.M)
    return Reading(float(found[1]) / 100, f"{float(found[1]):.1f}% of 10 s") if found else None


def _clocks(text: str) -> dict[str, dict[str, str]]:
    """CPU -> file -> text of the cpufreq files."""
    cpus: dict[str, dict[str, str]] = {}
    for path, value in by_path(text):
        cpu, _, name = path.partition("/cpufreq/")
        cpus.setdefault(cpu, {})[name] = value
    return cpus


def slow_governors(text: str, _machine: Machine) -> Reading | None:
    """Cores whose governor keeps the clock low; intel_pstate's and amd_pstate_epp's `powersave` does not."""
    cpus = [cpu for cpu in _clocks(text).values() if cpu.get("scaling_governor")]
    if not cpus:
        return None
    slow = sum(_keeps_low(cpu["scaling_governor"], cpu.get("scaling_driver", "")) for cpu in cpus)
    named = Counter(cpu["scaling_governor"] for cpu in cpus)
    return Reading(slow, ", ".join(f"{name} on {n}" for name, n in named.most_common()))


def _keeps_low(governor: str, driver: str) -> bool:
    scales_itself = driver in ("intel_pstate", "amd-pstate-epp")
    return governor in ("powersave", "conservative", "userspace") and not scales_itself


def capped_clock(text: str, _machine: Machine) -> Reading | None:
    """The lowest share of its hardware's clock that any core is allowed."""
    shares = [_share(cpu, "scaling_max_freq") for cpu in _clocks(text).values()]
    known = [share for share in shares if share is not None]
    return Reading(min(known), f"{min(known):.0%} of the clock") if known else None


def current_clock(text: str, _machine: Machine) -> Reading | None:
    """The fastest core's clock now as a share of its hardware's; low is only idle."""
    shares = [_share(cpu, "scaling_cur_freq") for cpu in _clocks(text).values()]
    known = [share for share in shares if share is not None]
    return Reading(max(known), f"{max(known):.0%} of the clock") if known else None


def _share(cpu: dict[str, str], name: str) -> float | None:
    if not (cpu.get(name, "").isdecimal() and cpu.get("cpuinfo_max_freq", "").isdecimal()):
        return None
    return int(cpu[name]) / int(cpu["cpuinfo_max_freq"])


def turbo(text: str, _machine: Machine) -> Reading | None:
    """Whether the clock may rise above its base: `intel_pstate/no_turbo` 0, or `cpufreq/boost` 1."""
    files = dict(by_path(text))
    if files.get("intel_pstate/no_turbo") in ("0", "1"):
        on = files["intel_pstate/no_turbo"] == "0"
    elif files.get("cpufreq/boost") in ("0", "1"):
        on = files["cpufreq/boost"] == "1"
    else:
        return None
    return Reading(float(on), "on" if on else "off")


def heat(text: str, _machine: Machine) -> Reading | None:
    """Degrees C that the zone nearest to its own passive, hot or critical trip point is below it."""
    files = dict(by_path(text))
    gaps = [gap for path in files if path.endswith("/temp") and (gap := _gap(files, path)) is not None]
    if not gaps:
        return None
    margin, zone, degrees = min(gaps)
    return Reading(margin, f"{zone} {degrees:.0f} C, {margin:.0f} C below its limit")


def _gap(files: dict[str, str], path: str) -> tuple[float, str, float] | None:
    zone = path.removesuffix("/temp")
    # A sensor that is switched off says 0 or a negative number.
    degrees = int(files[path]) / 1000
    kinds = {p: kind for p, kind in files.items() if p.startswith(f"{zone}/trip_") and p.endswith("_type")}
    limited = [p for p, kind in kinds.items() if kind in ("passive", "hot", "critical")]
    trips = [
        int(files[p.replace("_type", "_temp")]) / 1000
        for p in limited
        if p.replace("_type", "_temp") in files
    ]
    reached = [trip for trip in trips if trip > 0]
    if degrees <= 0 or not reached:
        return None
    return min(reached) - degrees, files.get(f"{zone}/type", zone), degrees


def on_battery(text: str, _machine: Machine) -> Reading | None:
    """Whether a battery of the machine itself (not of a mouse) discharges and no mains is there."""
    supplies: dict[str, dict[str, str]] = {}
    for path, value in by_path(text):
        name, _, file = path.partition("/")
        supplies.setdefault(name, {})[file] = value
    own = [s for s in supplies.values() if s.get("scope") != "Device"]
    batteries = [s for s in own if s.get("type") == "Battery"]
    mains = any(s.get("type") in _MAINS and s.get("online") == "1" for s in own)
    if not batteries:
        return Reading(0.0, "mains") if mains else None
    drawing = not mains and any(s.get("status") == "Discharging" for s in batteries)
    return Reading(float(drawing), "battery" if drawing else "mains")


LINUX = (
    ProbeSpec("swap_used_mib", MEMORY, swap_used, fixed(512), "close programs that hold memory"),
    ProbeSpec(
        "memory_free_share",
        MEMORY,
        memory_free,
        fixed(0.35),
        "close programs that hold memory",
        bound="least",
    ),
    ProbeSpec(
        "slow_governor_cores",
        CLOCKS,
        slow_governors,
        fixed(0),
        "sudo cpupower frequency-set -g performance",
        role="warns",
    ),
    ProbeSpec(
        "clock_allowed_share",
        CLOCKS,
        capped_clock,
        fixed(0.99),
        "raise scaling_max_freq: sudo cpupower frequency-set -u <maximum>",
        bound="least",
        role="warns",
    ),
    ProbeSpec("clock_now_share", CLOCKS, current_clock, fixed(1), role="shows"),
    ProbeSpec("turbo", TURBO, turbo, fixed(1), role="shows"),
    ProbeSpec(
        "heat_margin_c", HEAT, heat, fixed(5), "let it cool, free its air vents", bound="least", role="warns"
    ),
    ProbeSpec("on_battery", POWER, on_battery, fixed(0), "connect the power supply", role="warns"),
    ProbeSpec("load_1m", LOAD, load_average, lambda m: float(m.cores), role="shows"),
    ProbeSpec("cpu_stalled_share", PRESSURE["cpu"], stalled, fixed(1), role="shows"),
    ProbeSpec(
        "memory_stalled_share",
        PRESSURE["memory"],
        stalled,
        fixed(0.01),
        "close programs that hold memory",
        role="warns",
    ),
    ProbeSpec("io_stalled_share", PRESSURE["io"], stalled, fixed(1), role="shows"),
)
