"""macOS: power, thermal limits, swap and memory, as `pmset`, `sysctl` and `memory_pressure` print them.

The formats are those of macOS 13 to 15 on Apple silicon and Intel; numbers may have a decimal comma.
"""

from __future__ import annotations

import re

from labkit.bench.probes.probe import Machine, ProbeSpec, Reading, fixed, number
from labkit.bench.probes.source import Command

MIB = 2**20
THERM = Command(("pmset", "-g", "therm"))
SETTINGS = Command(("pmset", "-g"))
BATTERY = Command(("pmset", "-g", "batt"))
SYSCTL = Command(("sysctl", "vm.swapusage", "hw.memsize", "vm.loadavg"))
PRESSURE = Command(("memory_pressure", "-Q"))
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_NUMBER = r"(\d+(?:[.,]\d+)?)"
_NEVER_LIMITED = "No CPU power status has been recorded"


def speed_limit(text: str, _machine: Machine) -> Reading | None:
    """`pmset -g therm`: CPU_Speed_Limit in percent, 100 where none was ever recorded."""
    found = re.search(r"CPU_Speed_Limit\s*=\s*(\d+)", text)
    if found:
        return Reading(float(found[1]), f"{found[1]}%")
    return Reading(100.0, "never limited") if _NEVER_LIMITED in text else None


def thermal_warning(text: str, _machine: Machine) -> Reading | None:
    """`pmset -g therm`: the thermal warning level, 0 where none was recorded."""
    found = re.search(r"[Tt]hermal [Ww]arning [Ll]evel\s*[=:]\s*(\d+)", text)
    if found:
        return Reading(float(found[1]), f"level {found[1]}")
    return Reading(0.0, "none recorded") if "No thermal warning level" in text else None


def low_power_mode(text: str, _machine: Machine) -> Reading | None:
    """`pmset -g`: `lowpowermode`, or `powermode` (1 is low) on machines that have three modes."""
    found = re.search(r"^\s*lowpowermode\s+(\d)", text, re.M) or re.search(
        r"^\s*powermode\s+(\d)", text, re.M
    )
    if found is None:
        return None
    low = found[1] == "1"
    return Reading(float(low), "on" if low else "off")


def on_battery(text: str, _machine: Machine) -> Reading | None:
    """`pmset -g batt`: whether it draws from the battery (1) or not (0)."""
    found = re.search(r"drawing from '([^']+)'", text)
    return Reading(float("Battery" in found[1]), found[1].lower()) if found else None


def swap_used(text: str, _machine: Machine) -> Reading | None:
    """`sysctl vm.swapusage`: used swap in MiB."""
    found = re.search(rf"vm\.swapusage:.*?used\s*=\s*{_NUMBER}([KMGT])", text)
    return Reading(number(found[1]) * _UNITS[found[2]] / MIB) if found else None


def load_average(text: str, _machine: Machine) -> Reading | None:
    """`sysctl vm.loadavg`: the one-minute load."""
    found = re.search(rf"vm\.loadavg:\s*\{{\s*{_NUMBER}", text)
    return Reading(number(found[1])) if found else None


def memory_free(text: str, _machine: Machine) -> Reading | None:
    """`memory_pressure -Q`: the free percentage of the system, as a share."""
    found = re.search(rf"free percentage:\s*{_NUMBER}\s*%", text)
    return Reading(number(found[1]) / 100, f"{found[1]}%") if found else None


MACOS = (
    ProbeSpec(
        "swap_used_mib",
        SYSCTL,
        swap_used,
        fixed(512),
        "close programs that hold memory; swap empties slowly, a restart empties it at once",
    ),
    ProbeSpec(
        "memory_free_share",
        PRESSURE,
        memory_free,
        fixed(0.35),
        "close programs that hold memory",
        bound="least",
    ),
    ProbeSpec(
        "cpu_speed_limit_percent",
        THERM,
        speed_limit,
        fixed(100),
        "let it cool and look again: pmset -g therm",
        bound="least",
    ),
    ProbeSpec(
        "thermal_warning_level",
        THERM,
        thermal_warning,
        fixed(0),
        "let it cool and look again: pmset -g therm",
    ),
    ProbeSpec("low_power_mode", SETTINGS, low_power_mode, fixed(0), "sudo pmset -a lowpowermode 0"),
    ProbeSpec("on_battery", BATTERY, on_battery, fixed(0), "connect the power supply", role="warns"),
    ProbeSpec("load_1m", SYSCTL, load_average, lambda m: float(m.cores), role="shows"),
)
