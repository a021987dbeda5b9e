"""The probes of all three systems on recorded outputs: what they read, and whether it counts as quiet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labkit.bench.probes import cgroup, linux, macos, nvidia, nvml, processes, visit
from labkit.bench.probes.probe import Machine, Probe, ProbeSpec, find
from labkit.bench.quiet import probe_specs

RECORDED = Path(__file__).parent / "probe_outputs"
MACHINE = Machine(cores=8, memory_bytes=16 * 2**30, pid=741, gpu="0")
SPECS = {
    (system, spec.name): spec
    for system, specs in {
        "macos": (*macos.MACOS, *processes.PROCESSES),
        "linux": (*linux.LINUX, *cgroup.CGROUP),
        "nvidia": nvidia.NVIDIA,
    }.items()
    for spec in specs
}
ALL_SPECS = [*probe_specs("darwin"), *probe_specs("linux")]


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def finding(name: str, probe: str, machine: Machine = MACHINE) -> Probe:
    return find(SPECS[name.partition("/")[0], probe], recorded(name), machine)


@pytest.mark.parametrize(
    ("name", "probe", "value", "ok", "within"),
    [
        ("macos/therm_nothing_recorded.txt", "cpu_speed_limit_percent", 100, True, True),
        ("macos/therm_nothing_recorded.txt", "thermal_warning_level", 0, True, True),
        ("macos/therm_full_speed.txt", "cpu_speed_limit_percent", 100, True, True),
        ("macos/therm_hot.txt", "cpu_speed_limit_percent", 63, False, False),
        ("macos/therm_hot.txt", "thermal_warning_level", 1, False, False),
        ("macos/settings_mains.txt", "low_power_mode", 0, True, True),
        ("macos/settings_low_power.txt", "low_power_mode", 1, False, False),
        ("macos/settings_high_power.txt", "low_power_mode", 0, True, True),
        ("macos/battery_mains.txt", "on_battery", 0, True, True),
        ("macos/battery_desktop.txt", "on_battery", 0, True, True),
        ("macos/battery_discharging.txt", "on_battery", 1, True, False),
        ("macos/sysctl_healthy.txt", "swap_used_mib", 0, True, True),
        ("macos/sysctl_healthy.txt", "load_1m", 1.52, True, True),
        ("macos/sysctl_decimal_comma.txt", "swap_used_mib", 1893.25, False, False),
        ("macos/sysctl_decimal_comma.txt", "load_1m", 9.42, True, True),
        ("macos/pressure_free.txt", "memory_free_share", 0.81, True, True),
        ("macos/pressure_tight.txt", "memory_free_share", 0.22, False, False),
        ("macos/ps.txt", "largest_foreign_mib", 3415552 / 1024, False, False),
        ("linux/meminfo_healthy.txt", "memory_free_share", 24066432 / 24684084, True, True),
        ("linux/meminfo_healthy.txt", "swap_used_mib", 0, True, True),
        ("linux/meminfo_swapping.txt", "memory_free_share", 0.125, False, False),
        ("linux/meminfo_swapping.txt", "swap_used_mib", (8388604 - 5242880) / 1024, False, False),
        ("linux/loadavg.txt", "load_1m", 0.54, True, True),
        ("linux/pressure_calm.txt", "memory_stalled_share", 0.004, True, True),
        ("linux/pressure_stalled.txt", "memory_stalled_share", 0.3752, True, False),
        ("linux/pressure_stalled.txt", "cpu_stalled_share", 0.3752, True, True),
        ("linux/cpufreq_performance.txt", "slow_governor_cores", 0, True, True),
        ("linux/cpufreq_performance.txt", "clock_now_share", 1, True, True),
        ("linux/cpufreq_powersave_capped.txt", "slow_governor_cores", 3, True, False),
        ("linux/cpufreq_powersave_capped.txt", "clock_allowed_share", 18 / 35, True, False),
        ("linux/cpufreq_intel_pstate.txt", "slow_governor_cores", 0, True, True),
        ("linux/turbo_intel_on.txt", "turbo", 1, True, True),
        ("linux/turbo_boost_off.txt", "turbo", 0, True, True),
        ("linux/thermal_cool.txt", "heat_margin_c", 119 - 27.8, True, True),
        ("linux/thermal_hot.txt", "heat_margin_c", 3, True, False),
        ("linux/power_discharging.txt", "on_battery", 1, True, False),
        ("linux/power_mains_with_mouse.txt", "on_battery", 0, True, True),
        ("linux/cgroup_v2_limited_cpu.txt", "cgroup_cpu_cores", 1.5, True, False),
        ("linux/cgroup_v1_unlimited_cpu.txt", "cgroup_cpu_cores", 8, True, True),
        ("linux/cgroup_v1_limited_cpu.txt", "cgroup_cpu_cores", 4, True, False),
        (
            "linux/cgroup_v2_limited_memory.txt",
            "cgroup_memory_free_share",
            1 - (4080218931 - 2147483648) / 2**32,
            True,
            True,
        ),
        (
            "linux/cgroup_v2_full_memory.txt",
            "cgroup_memory_free_share",
            1 - (3865470566 - 53687091) / 2**32,
            False,
            False,
        ),
        (
            "linux/cgroup_v1_limited_memory.txt",
            "cgroup_memory_free_share",
            1 - (2040109465 - 52428800) / 2**31,
            False,
            False,
        ),
        ("nvidia/quiet.json", "gpu_other_processes", 0, True, True),
        ("nvidia/quiet.json", "gpu_busy_share", 0, True, True),
        ("nvidia/quiet.json", "gpu_slowdown", 0, True, True),
        ("nvidia/quiet.json", "gpu_clock_share", 345 / 1980, True, True),
        ("nvidia/quiet.json", "gpu_heat_margin_c", 54, True, True),
        ("nvidia/busy_neighbour.json", "gpu_heat_margin_c", 62, True, True),
        ("nvidia/busy_neighbour.json", "gpu_other_processes", 0, True, True),
        ("nvidia/hot_consumer.json", "gpu_slowdown", 1, False, False),
        ("nvidia/hot_consumer.json", "gpu_heat_margin_c", 4, True, False),
        ("nvidia/hot_consumer.json", "gpu_persistence", 0, True, False),
        ("nvidia/container.json", "gpu_other_processes", 0, True, True),
        # Captured on an H200 after ten seconds of matrix products: its power cap is no fault.
        ("nvidia/h200.json", "gpu_slowdown", 0, True, True),
        ("nvidia/h200.json", "gpu_busy_share", 0.92, False, False),
        ("nvidia/h200.json", "gpu_clock_share", 1620 / 1980, True, True),
        ("nvidia/h200.json", "gpu_heat_margin_c", 27, True, True),
    ],
)
def test_recorded_outputs(name: str, probe: str, value: float, ok: bool, within: bool) -> None:
    found = finding(name, probe)
    assert found.available
    assert found.value == pytest.approx(value, rel=1e-9, abs=1e-9)  # the same arithmetic, but for rounding
    assert (found.ok, found.within) == (ok, within)
    assert found.ok or found.advice


@pytest.mark.parametrize(
    ("name", "probe"),
    [
        ("linux/cpufreq_unknown.txt", "slow_governor_cores"),
        ("linux/cpufreq_unknown.txt", "clock_now_share"),
        ("linux/cgroup_v1_unlimited_memory.txt", "cgroup_memory_free_share"),
        ("nvidia/mig.json", "gpu_busy_share"),
        ("nvidia/mig.json", "gpu_other_processes"),
        ("nvidia/mig.json", "gpu_heat_margin_c"),
        ("nvidia/mig.json", "gpu_slowdown"),
    ],
)
def test_what_a_machine_cannot_tell_is_not_available_and_not_failed(name: str, probe: str) -> None:
    found = finding(name, probe)
    assert (found.available, found.ok, found.within) == (False, True, True)


DAMAGED = {
    "missing": None,
    "empty": "",
    "blank": "\n\n",
    "garbage": "\x00\ufffd garbage: = , : 12 '\n\t{}[]",
    "colons": ":\n::\n/:\na:b:c\n0/cpu.max:\n0/cpu.max:0 0\n0/memory.max:0\n0/memory.current:0\n",
    "json": '{"devices": []}',
    "other_json": '{"devices": [{"reasons": "x", "sm_mhz": 1, "sm_max_mhz": 0, "processes": 3}]}',
    "deep_json": '{"devices": [[1]]}',
    "german_error": "sysctl: unbekannter Parameter »vm.swapusage«\n",
    "not_a_number": "MemTotal: nan kB\nMemAvailable: -1 kB\nvm.loadavg: { nan }\n",
    "zero_total": "MemTotal: 0 kB\nMemAvailable: 0 kB\nSwapTotal: 0 kB\n",
    "huge": "MemTotal: 1 kB\n" + "MemAvailable: " + "9" * 5000 + " kB\n",
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
@pytest.mark.parametrize("spec", ALL_SPECS, ids=lambda spec: spec.name)
def test_a_text_that_cannot_be_understood_is_not_available(spec: ProbeSpec, text: str | None) -> None:
    found = find(spec, text, MACHINE)
    assert (found.available, found.ok) == (False, True)
    assert isfinite(found.limit)
    json.dumps(found.to_json(), allow_nan=False)


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*/*")), ids=lambda path: path.name)
def test_every_truncation_of_a_recording_is_read_or_refused_without_an_error(path: Path) -> None:
    text = path.read_text()
    cuts = range(0, len(text), max(1, len(text) // 40))
    for cut in cuts:
        for spec in ALL_SPECS:
            json.dumps(find(spec, text[:cut], MACHINE).to_json(), allow_nan=False)
        visit.package_throttling(text[:cut])
        cgroup.throttling(text[:cut])


def test_a_family_is_all_above_and_below_and_not_beside() -> None:
    parents = {1: 0, 10: 1, 20: 10, 30: 20, 31: 20, 40: 30, 11: 1, 12: 11}
    assert processes.family(parents, 20) == {0, 1, 10, 20, 30, 31, 40}
    loop = {5: 6, 6: 5, 7: 5}
    assert processes.family(loop, 5) == {5, 6, 7}


def test_the_largest_foreign_process_is_named_without_its_folder() -> None:
    assert finding("macos/ps.txt", "largest_foreign_mib").shown == "3.3 GiB in process 905, Photo Editor"
    nameless = "1 0 100\n741 1 100\n905 1 3415552\n"
    spec = SPECS["macos", "largest_foreign_mib"]
    assert find(spec, nameless, MACHINE).shown == "3.3 GiB in process 905"
    odd = "741 1 100\n905 1 3415552 /home/anna/a\x1b[31m\tb" + "c" * 99 + "\n"
    assert find(spec, odd, MACHINE).shown == "3.3 GiB in process 905, a[31m b" + "c" * 33  # 40 in all


def test_neither_who_started_this_process_nor_the_kernel_is_foreign() -> None:
    shell_and_kernel = "1 0 9000000 init\n2 0 0 kthreadd\n99 2 0 kworker/0:1\n700 1 9000000 jupyter\n"
    own = "720 700 9000000 ipykernel\n741 720 9000000 python\n742 741 9000000 worker\n"
    found = find(SPECS["macos", "largest_foreign_mib"], shell_and_kernel + own, MACHINE)
    assert (found.ok, found.value) == (True, 0)


def test_every_column_of_ps_ends_its_option() -> None:
    assert processes.PS.words == ("ps", "-ax", "-o", "pid=", "-o", "ppid=", "-o", "rss=", "-o", "comm=")


def test_the_gpu_that_mlx_computes_on_is_the_one_that_is_judged() -> None:
    name = "nvidia/busy_neighbour.json"
    second = Machine(8, 2**34, 741, gpu="1")
    assert finding(name, "gpu_busy_share").ok
    assert not finding(name, "gpu_busy_share", second).ok
    assert finding(name, "gpu_other_processes", second).value == 2
    assert finding(name, "gpu_slowdown", second).shown == "power cap"
    by_uuid = Machine(8, 2**34, 741, gpu="GPU-00000001")
    assert not finding(name, "gpu_busy_share", by_uuid).ok
    for nowhere in (None, "7", "MIG-1234", "GPU-"):
        assert not finding(name, "gpu_busy_share", Machine(8, 2**34, 741, gpu=nowhere)).available


def different_cards(*, order: str, pci: bool = True) -> str:
    """Two models: the card of the lower bus is idle, the other one is hot; `order` as NVML lists them."""
    cards = {
        "i": {"name": "T4", "pci": "00000000:3B:00.0", "uuid": "GPU-1", "busy_percent": 0},
        "h": {"name": "H200", "pci": "00000000:AF:00.0", "uuid": "GPU-2", "busy_percent": 90},
    }
    listed = [{key: cards[c][key] for key in cards[c] if pci or key != "pci"} for c in order]
    return json.dumps({"devices": listed})


@pytest.mark.parametrize("order", ["ih", "hi"])
def test_of_different_cards_one_is_judged_only_where_it_is_known_which(order: str) -> None:
    spec, text = SPECS["nvidia", "gpu_busy_share"], different_cards(order=order)
    fastest_first = Machine(8, 2**34, 741, gpu="0")
    assert not find(spec, text, fastest_first).available
    assert nvidia.counters(text, fastest_first) == {}
    first, second = (Machine(8, 2**34, 741, gpu=n, gpu_by_bus=True) for n in "01")
    assert find(spec, text, first).shown == "0% on T4 00000000:3B:00.0"
    assert find(spec, text, second).shown == "90% on H200 00000000:AF:00.0"
    named = Machine(8, 2**34, 741, gpu="GPU-2")
    assert find(spec, text, named).value == 0.9


def test_cards_that_do_not_tell_their_bus_are_in_the_order_of_nvml() -> None:
    second = Machine(8, 2**34, 741, gpu="1", gpu_by_bus=True)
    found = find(SPECS["nvidia", "gpu_busy_share"], different_cards(order="ih", pci=False), second)
    assert (found.value, found.shown) == (0.9, "90% on H200")


def test_a_card_that_does_not_say_its_name_may_be_of_another_model() -> None:
    text = json.dumps({"devices": [{"name": "T4", "busy_percent": 0}, {}]})
    assert not find(SPECS["nvidia", "gpu_busy_share"], text, MACHINE).available


@pytest.mark.parametrize(
    ("mask", "slowed"),
    # nvml.h: idle, application clocks, power cap, sync boost and display clocks are no slowdowns.
    [(0x08, 1), (0x20, 1), (0x40, 1), (0x80, 1), (0x01, 0), (0x02, 0), (0x04, 0), (0x10, 0), (0x100, 0)],
)
def test_which_reasons_are_slowdowns(mask: int, slowed: int) -> None:
    text = json.dumps({"devices": [{"reasons": mask}]})
    found = find(SPECS["nvidia", "gpu_slowdown"], text, MACHINE)
    assert (found.value, found.ok) == (slowed, not slowed)


def test_reasons_are_named_and_unknown_ones_shown() -> None:
    assert nvidia.reasons_in_words(0) == "none"
    assert nvidia.reasons_in_words(0x64) == "software thermal slowdown, hardware thermal slowdown, power cap"
    assert nvidia.reasons_in_words(0x8001) == "idle, 0x8000"


def groups(text: str) -> dict[str, float]:
    return visit.group_throttling(text)


def stat(*counts: tuple[int, int]) -> str:
    """`cpu.stat` of nested groups: periods and throttled periods of each."""
    lines = [
        f"{group}/cpu.stat:nr_periods {periods}\n{group}/cpu.stat:nr_throttled {throttled}\n"
        for group, (periods, throttled) in enumerate(counts)
    ]
    return "".join(lines)


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        # The group with most throttled periods so far is not the one that was throttled now.
        ([(100, 50), (10000, 45)], [(200, 50), (10100, 145)], 1.0),
        ([(100, 45), (10000, 50)], [(200, 145), (10100, 50)], 1.0),
        ([(100, 50), (10000, 60)], [(200, 52), (10100, 61)], 0.02),
        ([(0, 0), (900, 90)], [(50, 25), (1000, 90)], 0.5),
        ([(0, 0), (900, 90)], [(0, 0), (1000, 90)], 0.0),
    ],
)
def test_each_group_is_counted_for_itself_and_the_worst_is_judged(
    before: list[tuple[int, int]], after: list[tuple[int, int]], share: float
) -> None:
    found = counters(groups(stat(*before)), groups(stat(*after)))["cgroup_throttled_share"]
    assert found.value == pytest.approx(share)  # the same fraction, but for rounding
    assert found.ok == (share <= 0.05)


def test_each_package_is_counted_for_itself() -> None:
    path = "thermal_throttle/package_throttle_total_time_ms"
    before, after = (
        visit.package_throttling(f"cpu0/{path}:51200\ncpu8/{path}:{cold}\n") for cold in (0, 9000)
    )
    found = counters(before, after)["package_throttled_share"]
    assert (found.value, found.ok) == (pytest.approx(0.9), False)  # 9 s of ten, but for rounding


def counters(before: dict[str, float], after: dict[str, float], seconds: float = 10.0) -> dict[str, Probe]:
    return {probe.name: probe for probe in visit.judge(before, after, seconds)}


def test_throttled_periods_of_a_container_are_counted_over_the_visit() -> None:
    assert (20410, 5120) in cgroup.throttling(recorded("linux/cgroup_v2_limited_cpu.txt")).values()
    assert (912, 77) in cgroup.throttling(recorded("linux/cgroup_v1_limited_cpu.txt")).values()
    unlimited = groups(recorded("linux/cgroup_v1_unlimited_cpu.txt"))
    assert counters(unlimited, unlimited) == {}
    before = {"cgroup_periods": 912.0, "cgroup_throttled": 77.0}
    calm = counters(before, {"cgroup_periods": 1012.0, "cgroup_throttled": 81.0})
    assert calm["cgroup_throttled_share"].value == pytest.approx(0.04)  # 4 of 100 periods
    assert calm["cgroup_throttled_share"].ok
    held = counters(before, {"cgroup_periods": 1012.0, "cgroup_throttled": 83.0})
    assert not held["cgroup_throttled_share"].ok
    assert counters(before, before) == {}


def test_heat_and_power_are_counted_over_the_visit() -> None:
    assert max(visit.package_throttling(recorded("linux/package_throttle.txt")).values()) == 51.2
    before = nvidia.counters(recorded("nvidia/hot_consumer.json"), MACHINE)
    assert before["gpu_slowed_s"] == pytest.approx(1.75)  # 1.5 s and 0.25 s, but for rounding
    after = {**before, "gpu_slowed_s": 2.25, "gpu_power_capped_s": 9.2, "gpu_slowdown": 0.0}
    found = counters(before, after)
    assert found["gpu_slowed_share"].value == pytest.approx(0.05)  # half a second of ten
    assert not found["gpu_slowed_share"].ok
    assert found["gpu_power_capped_share"].ok
    assert not found["gpu_power_capped_share"].within
    assert found["gpu_slowdown"].ok
    assert not counters(before, {**before, "gpu_other_processes": 1.0})["gpu_other_processes"].ok


def test_counters_that_are_not_there_or_were_set_back_judge_nothing() -> None:
    assert counters({}, {"gpu_slowed_s": 1.0}) == {}
    assert counters({"gpu_slowed_s": 9.0}, {"gpu_slowed_s": 1.0})["gpu_slowed_share"].value == 0
    assert nvidia.counters(recorded("nvidia/mig.json"), MACHINE) == {}


class FakeNvml:
    """NVML as the package `pynvml` has it, of one device; a question that it lacks is not supported."""

    NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP = 1
    NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN = 2

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"handle {index}"

    def nvmlDeviceGetPciInfo(self, _handle: str) -> Any:
        return SimpleNamespace(busId=b"00000000:3B:00.0")

    def nvmlDeviceGetTemperature(self, _handle: str, sensor: int) -> int:
        return {0: 61}[sensor]

    def nvmlDeviceGetTemperatureThreshold(self, _handle: str, threshold: int) -> int:
        """As nvmlTemperatureThresholds_t of nvml.h numbers them."""
        shutdown, slowdown, memory, maximum = 0, 1, 2, 3
        return {shutdown: 98, slowdown: 93, memory: 105, maximum: 90}[threshold]

    def nvmlDeviceGetUUID(self, _handle: str) -> bytes:
        return b"GPU-abc"

    def nvmlDeviceGetClockInfo(self, _handle: str, kind: int) -> int:
        assert kind == 1
        return 1980

    def nvmlDeviceGetMaxClockInfo(self, _handle: str, _kind: int) -> int:
        return 1980

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _handle: str) -> int:
        return 8

    def nvmlDeviceGetPersistenceMode(self, _handle: str) -> int:
        raise RuntimeError("Not Supported")

    def nvmlDeviceGetComputeRunningProcesses(self, _handle: str) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in (1, 2, 3)]

    def nvmlDeviceGetFieldValues(self, _handle: str, fields: Sequence[int]) -> list[Any]:
        value = SimpleNamespace(ullVal=5_000_000_000)
        return [SimpleNamespace(nvmlReturn=0 if field == 2 else 3, value=value) for field in fields]


def test_a_snapshot_leaves_out_what_a_card_does_not_answer() -> None:
    owners = {1: "ours", 2: "other", 3: "hidden"}
    text = nvml.snapshot(FakeNvml(), owners.__getitem__)
    assert text is not None
    assert json.loads(text)["devices"] == [
        {
            "uuid": "GPU-abc",
            "pci": "00000000:3B:00.0",
            "sm_mhz": 1980,
            "sm_max_mhz": 1980,
            "temperature_c": 61,
            "slowdown_c": 93,
            "reasons": 8,
            "processes": ["ours", "other", "hidden"],
            "held_ns": {"HW_THERM_SLOWDOWN": 5_000_000_000},
        }
    ]
    found = find(SPECS["nvidia", "gpu_other_processes"], text, MACHINE)
    assert (found.value, found.shown) == (1, "1, and 1 outside this container")
    assert not find(SPECS["nvidia", "gpu_slowdown"], text, MACHINE).ok
    assert not find(SPECS["nvidia", "gpu_persistence"], text, MACHINE).available
    assert nvml.snapshot(object(), owners.__getitem__) is None
