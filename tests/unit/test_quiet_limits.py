"""The limits of a quiet machine, each read on both sides of it, as the reference system states them.

Swap of at most 512 MB, at least 35% of memory free, no foreign process over 2 GB, full CPU speed; swap that
grows during a run by at most the larger of 2 GB and an eighth of the memory; samples within 15% of another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from labkit.bench.pairs import Role
from labkit.bench.probes import visit
from labkit.bench.probes.probe import Machine, Probe
from labkit.bench.probes.source import Source
from labkit.bench.quiet import Usage, all_probes, probe_specs, read_probes, visit_probes
from labkit.core.records import VisitResult
from labkit.lab.measuring.measured import Measured, noisy_visits, unstable_rates

MACHINE = Machine(cores=8, memory_bytes=512 * 2**30, pid=5, gpu="0")
MIB = 2**20


def told(platform: str, name: str, texts: Mapping[str, str]) -> Probe:
    """A probe where every source whose title begins as a key says its text, and the others nothing."""

    def read(source: Source) -> str | None:
        return next((text for key, text in texts.items() if source.title.startswith(key)), None)

    found = {probe.name: probe for probe in read_probes(probe_specs(platform), MACHINE, read)}
    assert found[name].available
    return found[name]


def meminfo(*, free_share: float = 1.0, swap_mib: float = 0.0) -> dict[str, str]:
    lines = {
        "MemTotal": 10_000_000,
        "MemAvailable": round(10_000_000 * free_share),
        "SwapTotal": 8_000_000,
        "SwapFree": 8_000_000 - round(swap_mib * 1024),
    }
    return {"/proc/meminfo": "".join(f"{name}: {kib} kB\n" for name, kib in lines.items())}


def sysctl(swap_mib: float) -> dict[str, str]:
    return {"sysctl": f"vm.swapusage: total = 2048.00M  used = {swap_mib:.2f}M  free = 1.00M\n"}


def of_psutil(*, free_share: float = 1.0, swap_mib: float = 0.0) -> dict[str, str]:
    numbers = {"available": free_share, "total": 1.0, "swap_used": swap_mib * MIB}
    return {"psutil": json.dumps(numbers)}


def processes(mib: float) -> dict[str, str]:
    table = f"1 0 100 init\n5 1 100 python\n77 1 {round(mib * 1024)} other\n"
    return {"the process table": table, "ps ": table}


def therm(percent: int) -> dict[str, str]:
    return {"pmset -g therm": f"CPU_Speed_Limit = {percent}\n"}


def pressure(percent: int) -> dict[str, str]:
    return {"memory_pressure": f"System-wide memory free percentage: {percent}%\n"}


def limited_memory(used: int) -> dict[str, str]:
    return {"/sys/fs/cgroup (memory)": f"0/memory.max:1000\n0/memory.current:{used}\n"}


def quota(cores: float) -> dict[str, str]:
    return {"/sys/fs/cgroup (cpu)": f"0/cpu.max:{round(cores * 1000)} 1000\n"}


def clocks(governor: str = "performance", allowed: int = 1000) -> dict[str, str]:
    files = {"scaling_governor": governor, "scaling_max_freq": allowed, "cpuinfo_max_freq": 1000}
    lines = (f"cpu0/cpufreq/{name}:{value}\n" for name, value in files.items())
    return {"/sys/devices/system/cpu/cpu[0-9]*/cpufreq": "".join(lines)}


def zone(degrees: float) -> dict[str, str]:
    trip = "thermal_zone0/trip_point_0_type:critical\nthermal_zone0/trip_point_0_temp:100000\n"
    return {"/sys/class/thermal": f"{trip}thermal_zone0/temp:{round(degrees * 1000)}\n"}


def battery(online: int) -> dict[str, str]:
    supplies = f"AC/type:Mains\nAC/online:{online}\nBAT0/type:Battery\nBAT0/status:Discharging\n"
    return {
        "/sys/class/power_supply": supplies,
        "pmset -g batt": f"Now drawing from '{'AC' if online else 'Battery'} Power'\n",
    }


def stalls(percent: float) -> dict[str, str]:
    return {"/proc/pressure/memory": f"some avg10={percent:.2f} avg60=0.00 avg300=0.00 total=0\n"}


def card(**said: object) -> dict[str, str]:
    return {"NVML": json.dumps({"devices": [said]})}


def warning(level: int) -> dict[str, str]:
    return {"pmset -g therm": f"Thermal Warning Level = {level}\n"}


def low_power(on: int) -> dict[str, str]:
    return {"pmset -g": f" lowpowermode         {on}\n"}


LIMITS = [
    ("linux", "swap_used_mib", meminfo(swap_mib=512), meminfo(swap_mib=513)),
    ("darwin", "swap_used_mib", sysctl(512), sysctl(512.01)),
    ("linux", "swap_used_mib", of_psutil(swap_mib=512), of_psutil(swap_mib=513)),
    ("linux", "memory_free_share", meminfo(free_share=0.35), meminfo(free_share=0.349)),
    ("darwin", "memory_free_share", pressure(35), pressure(34)),
    ("darwin", "memory_free_share", of_psutil(free_share=0.35), of_psutil(free_share=0.349)),
    ("darwin", "cpu_speed_limit_percent", therm(100), therm(99)),
    ("linux", "largest_foreign_mib", processes(2048), processes(2049)),
    # Beyond what the reference system states, labkit's own.
    ("darwin", "thermal_warning_level", warning(0), warning(1)),
    ("darwin", "low_power_mode", low_power(0), low_power(1)),
    ("darwin", "on_battery", battery(1), battery(0)),
    ("linux", "on_battery", battery(1), battery(0)),
    ("linux", "cgroup_memory_free_share", limited_memory(650), limited_memory(651)),
    ("linux", "cgroup_cpu_cores", quota(8), quota(7.9)),
    ("linux", "slow_governor_cores", clocks(), clocks("powersave")),
    ("linux", "clock_allowed_share", clocks(allowed=990), clocks(allowed=989)),
    ("linux", "heat_margin_c", zone(95), zone(95.5)),
    ("linux", "memory_stalled_share", stalls(1), stalls(1.01)),
    ("linux", "gpu_other_processes", card(processes=["ours"]), card(processes=["other"])),
    ("linux", "gpu_busy_share", card(busy_percent=10), card(busy_percent=11)),
    ("linux", "gpu_slowdown", card(reasons=0x04), card(reasons=0x08)),
    ("linux", "gpu_heat_margin_c", card(temperature_c=50, margin_c=5), card(temperature_c=50, margin_c=4)),
    ("linux", "gpu_persistence", card(persistence=1), card(persistence=0)),
]


@pytest.mark.parametrize(("platform", "name", "within", "beyond"), LIMITS)
def test_both_sides_of_a_standing_limit(
    platform: str, name: str, within: dict[str, str], beyond: dict[str, str]
) -> None:
    assert told(platform, name, within).within
    loud = told(platform, name, beyond)
    assert not loud.within and loud.advice
    assert loud.ok == (loud.role == "warns")


def test_every_standing_limit_is_read_on_both_sides() -> None:
    specs = [spec for platform in ("linux", "darwin") for spec in probe_specs(platform)]
    assert {spec.name for spec in specs if spec.role != "shows"} == {name for _, name, _, _ in LIMITS}


VISIT_LIMITS = {
    "cgroup_throttled_share": 0.05,
    "package_throttled_share": 0.05,
    "gpu_slowed_share": 0.01,
    "gpu_power_capped_share": 0.05,
    "gpu_slowdown": 0,
    "gpu_other_processes": 0,
}


@pytest.mark.parametrize("spec", visit.VISIT, ids=lambda spec: spec.name)
def test_both_sides_of_a_limit_of_a_visit(spec: visit.VisitSpec) -> None:
    """Of 1,000 periods or seconds so many were taken away; a level is what there is at the end."""
    limit = VISIT_LIMITS[spec.name] * 1000
    before = {spec.counter: 0.0} | ({spec.over: 0.0} if spec.over else {})
    for taken, within in ((limit, True), (limit + 1, False)):
        after = {spec.counter: taken} | ({spec.over: 1000.0} if spec.over else {})
        (found,) = visit.judge(before, after, 1000.0)
        assert (found.within, found.ok) == (within, within or spec.role == "warns")


@pytest.mark.parametrize(("percent", "ok"), [(9.9, True), (10.0, True), (10.1, False)])
def test_others_may_use_a_tenth_of_the_cores_before_a_run(
    monkeypatch: pytest.MonkeyPatch, percent: float, ok: bool
) -> None:
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: percent)
    assert all_probes(seconds=0.0)[0].ok is ok


@pytest.mark.parametrize(("share", "ok"), [(0.099, True), (0.101, False)])
def test_others_may_use_a_tenth_of_the_cores_during_a_visit(
    monkeypatch: pytest.MonkeyPatch, share: float, ok: bool
) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda: 8)
    found = visit_probes(Usage(100.0, 10.0, 0), Usage(115.0 + share * 80, 25.0, 0), seconds=10.0)[0]
    assert found.value == pytest.approx(share)  # the same arithmetic, but for rounding
    assert found.ok is ok


def growth(name: str, mib: float, *, run_began: Usage | None = None) -> Probe:
    after = Usage(1.0, 1.0, round(mib * MIB))
    return {p.name: p for p in visit_probes(Usage(0.0, 0.0, 0), after, 1.0, run_began)}[name]


@pytest.mark.parametrize(("memory_gib", "limit_mib"), [(8, 2048), (16, 2048), (64, 8192)])
@pytest.mark.parametrize("name", ["swap_growth_mib", "run_swap_growth_mib"])
def test_swap_may_grow_by_2_gib_or_an_eighth_of_the_memory(
    monkeypatch: pytest.MonkeyPatch, name: str, memory_gib: int, limit_mib: int
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=memory_gib * 2**30))
    assert growth(name, limit_mib).ok
    assert not growth(name, limit_mib + 1).ok


def test_swap_that_grows_a_little_in_every_visit_has_grown_over_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=16 * 2**30))
    began, before, after = (Usage(float(s), float(s), s * 500 * MIB) for s in (0, 4, 5))
    found = {probe.name: probe for probe in visit_probes(before, after, 1.0, began)}
    assert (found["swap_growth_mib"].value, found["swap_growth_mib"].ok) == (500, True)
    assert (found["run_swap_growth_mib"].value, found["run_swap_growth_mib"].ok) == (2500, False)


def good(role: Role, **metrics: float) -> VisitResult:
    return VisitResult(0, 0, role, "ok", 0.0, metrics=metrics)


def test_an_arm_is_unstable_beyond_a_ratio_of_1_15() -> None:
    steady = [good("baseline", decode_tps=100.0, prefill_tps=1000.0), good("baseline", decode_tps=115.0)]
    assert list(unstable_rates(Measured(steady))) == []
    shaky = [good("candidate", decode_tps=100.0), good("candidate", decode_tps=115.1)]
    assert list(unstable_rates(Measured([*steady, *shaky]))) == ["candidate decode_tps"]
    prefill = [good("baseline", prefill_tps=value) for value in (1000.0, 850.0)]
    assert list(unstable_rates(Measured(prefill))) == ["baseline prefill_tps"]


def test_visits_that_warm_up_or_failed_make_no_arm_unstable() -> None:
    statuses: tuple[Any, ...] = ("warmup", "ok", "failed")
    rates = zip(statuses, (10.0, 100.0, 1.0), strict=True)
    visits = [VisitResult(0, 0, "baseline", s, 0.0, metrics={"decode_tps": rate}) for s, rate in rates]
    assert list(unstable_rates(Measured(visits))) == []


def test_a_noise_before_the_run_is_told_with_what_was_seen() -> None:
    large = told("linux", "largest_foreign_mib", processes(4096))
    seen = "4.0 GiB in process 77, other (close that process)"
    (said,) = noisy_visits(Measured(standing=(large,)))
    assert said == f"largest_foreign_mib 4096.00 beyond 2048.00 before the run: {seen}"
