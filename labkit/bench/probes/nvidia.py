"""NVIDIA: clocks, heat, slowdowns and other processes of the GPU that mlx computes on, through NVML.

`snapshot` asks NVML and gives a JSON text; everything else is pure and tested on recorded snapshots. A
question that a card or driver does not answer (MIG, virtual GPUs) is left out of the snapshot.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import psutil

from labkit.bench.probes.probe import Machine, ProbeSpec, Reading, fixed

# nvml.h, nvmlClocksEventReasons: what takes clock away against the will of who measures.
SLOWDOWNS: Mapping[int, str] = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
OTHERS: Mapping[int, str] = {
    0x01: "idle",
    0x02: "application clocks",
    0x04: "power cap",
    0x10: "sync boost",
    0x100: "display clocks",
}
# Counters in ns since the driver was loaded, by the last part of their names in NVML.
_HELD = ("SW_POWER_CAP", "SW_THERM_SLOWDOWN", "HW_THERM_SLOWDOWN", "HW_POWER_BRAKE_SLOWDOWN")
_FIELD = "NVML_FI_DEV_CLOCKS_EVENT_REASON_"


@dataclass(frozen=True, slots=True)
class Nvml:
    """NVML's snapshot of every GPU, from the package nvidia-ml-py; None without it or without a driver."""

    title: str = "NVML"

    def read(self) -> str | None:
        nvml = library()
        return None if nvml is None else snapshot(nvml, whose)


@cache
def library() -> Any:
    """The initialised module `pynvml`, or None. It stays initialised: that takes longer than a question."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # whatever a missing driver or a foreign module of this name raises
        return None
    return nvml


def snapshot(nvml: Any, owner: Callable[[int], str]) -> str | None:
    """What NVML says of every device, as JSON. owner: process id to `ours`, `other` or `hidden`."""
    count = _ask(nvml, "GetCount")
    if not count:
        return None
    handles = [_ask(nvml, "GetHandleByIndex", index) for index in range(count)]
    found = [{} if handle is None else _device(nvml, handle, owner) for handle in handles]
    return json.dumps({"devices": found})


def _device(nvml: Any, handle: Any, owner: Callable[[int], str]) -> dict[str, Any]:
    busy_now = _ask(nvml, "GetUtilizationRates", handle)
    running = _ask(nvml, "GetComputeRunningProcesses", handle)
    # The constants of nvml.h: 1 is the SM clock, 0 the GPU's sensor, 1 the threshold of a slowdown.
    answers = {
        "uuid": _ask(nvml, "GetUUID", handle),
        "name": _ask(nvml, "GetName", handle),
        "sm_mhz": _ask(nvml, "GetClockInfo", handle, 1),
        "sm_max_mhz": _ask(nvml, "GetMaxClockInfo", handle, 1),
        "temperature_c": _ask(nvml, "GetTemperature", handle, 0),
        "slowdown_c": _ask(nvml, "GetTemperatureThreshold", handle, 1),
        "margin_c": _ask(nvml, "GetMarginTemperature", handle),
        "reasons": _reasons(nvml, handle),
        "persistence": _ask(nvml, "GetPersistenceMode", handle),
        "busy_percent": None if busy_now is None else busy_now.gpu,
        "processes": None if running is None else [owner(process.pid) for process in running],
        "held_ns": _held(nvml, handle),
    }
    return {name: answer for name, answer in answers.items() if answer is not None}


def _reasons(nvml: Any, handle: Any) -> int | None:
    """The mask of reasons, under the name that drivers before R535 have too."""
    mask = _ask(nvml, "GetCurrentClocksEventReasons", handle)
    return _ask(nvml, "GetCurrentClocksThrottleReasons", handle) if mask is None else mask


def _held(nvml: Any, handle: Any) -> dict[str, int] | None:
    """Nanoseconds so far for which the clock was held down, by reason."""
    known = {name: number for name in _HELD if (number := getattr(nvml, _FIELD + name, None)) is not None}
    values = _ask(nvml, "GetFieldValues", handle, list(known.values())) or ()
    pairs = zip(known, values, strict=False)
    return {name: int(value.value.ullVal) for name, value in pairs if value.nvmlReturn == 0} or None


def _ask(nvml: Any, question: str, *arguments: Any) -> Any:
    """NVML's answer; None where it has none, and where the package is too old to ask."""
    with suppress(Exception):
        answer = getattr(nvml, f"nvmlDevice{question}")(*arguments)
        return answer.decode(errors="replace") if isinstance(answer, bytes) else answer
    return None


def whose(pid: int) -> str:
    """`ours`: this process, one that it started or that started it. `hidden`: of another namespace."""
    own = os.getpid()
    try:
        if pid == own or own in {p.pid for p in psutil.Process(pid).parents()}:
            return "ours"
        return "ours" if pid in {p.pid for p in psutil.Process(own).parents()} else "other"
    except psutil.NoSuchProcess:
        return "hidden"
    except psutil.Error:
        return "other"


def device(text: str, machine: Machine) -> dict[str, Any] | None:
    """The GPU that mlx computes on; None where it computes on none, or on one that NVML does not name."""
    devices = json.loads(text)["devices"]
    wanted = machine.gpu
    if wanted is None:
        return None
    if wanted.isdecimal():
        return devices[int(wanted)]
    named = [d for d in devices if str(d.get("uuid", "")).startswith(wanted)]
    return named[0] if len(named) == 1 else None


def reasons_in_words(mask: int) -> str:
    """The reasons of a mask, the slowdowns first."""
    known = {**SLOWDOWNS, **OTHERS}
    named = [word for bit, word in known.items() if mask & bit]
    unknown = mask & ~sum(known)
    return ", ".join([*named, *([f"0x{unknown:x}"] if unknown else [])]) or "none"


def slowdown(text: str, machine: Machine) -> Reading | None:
    """1 where a slowdown holds the clock down now; a power cap or idling is none."""
    gpu = device(text, machine)
    if gpu is None or "reasons" not in gpu:
        return None
    mask = int(gpu["reasons"])
    return Reading(float(bool(mask & sum(SLOWDOWNS))), reasons_in_words(mask))


def other_processes(text: str, machine: Machine) -> Reading | None:
    """Processes of others that compute on the GPU; those of another namespace may be our own."""
    gpu = device(text, machine)
    if gpu is None or "processes" not in gpu:
        return None
    others, hidden = (gpu["processes"].count(kind) for kind in ("other", "hidden"))
    return Reading(others, f"{others}, and {hidden} outside this container" if hidden else str(others))


def busy(text: str, machine: Machine) -> Reading | None:
    """The share of the driver's last sample (up to a second) in which a kernel ran."""
    gpu = device(text, machine)
    if gpu is None or "busy_percent" not in gpu:
        return None
    return Reading(int(gpu["busy_percent"]) / 100, f"{gpu['busy_percent']}%")


def heat(text: str, machine: Machine) -> Reading | None:
    """Degrees C below the temperature at which the card slows down; recent cards tell the margin itself."""
    gpu = device(text, machine)
    if gpu is None or "temperature_c" not in gpu:
        return None
    margin = int(gpu.get("slowdown_c", 0)) - int(gpu["temperature_c"])
    if "margin_c" in gpu:
        margin = int(gpu["margin_c"])
    elif int(gpu.get("slowdown_c", 0)) <= 0:
        return None
    return Reading(margin, f"{gpu['temperature_c']} C, {margin} C below slowdown")


def clock(text: str, machine: Machine) -> Reading | None:
    """The SM clock as a share of its maximum; low is only idle."""
    gpu = device(text, machine)
    if gpu is None or not {"sm_mhz", "sm_max_mhz"} <= gpu.keys():
        return None
    return Reading(int(gpu["sm_mhz"]) / int(gpu["sm_max_mhz"]), f"{gpu['sm_mhz']} of {gpu['sm_max_mhz']} MHz")


def persistence(text: str, machine: Machine) -> Reading | None:
    """Whether the driver stays loaded between processes (persistence mode)."""
    gpu = device(text, machine)
    if gpu is None or gpu.get("persistence") not in (0, 1):
        return None
    return Reading(gpu["persistence"], "on" if gpu["persistence"] else "off")


def counters(text: str, machine: Machine) -> dict[str, float]:
    """What a visit is judged by: seconds of slowdown and power cap so far, processes of others now."""
    gpu = device(text, machine) or {}
    found: dict[str, float] = {}
    if held := dict(gpu.get("held_ns", {})):
        found["gpu_power_capped_s"] = held.pop("SW_POWER_CAP", 0) / 1e9
        found["gpu_slowed_s"] = sum(held.values()) / 1e9
    for name, parse in (("gpu_slowdown", slowdown), ("gpu_other_processes", other_processes)):
        if reading := parse(text, machine):
            found[name] = reading.value
    return found


NVML = Nvml()
NVIDIA = (
    ProbeSpec(
        "gpu_other_processes", NVML, other_processes, fixed(0), "stop them: nvidia-smi names each process"
    ),
    ProbeSpec("gpu_busy_share", NVML, busy, fixed(0.10), "stop what else computes on the GPU"),
    ProbeSpec(
        "gpu_slowdown", NVML, slowdown, fixed(0), "mend its cooling or power: nvidia-smi -q -d PERFORMANCE"
    ),
    ProbeSpec(
        "gpu_heat_margin_c",
        NVML,
        heat,
        fixed(5),
        "let it cool, mend its cooling",
        bound="least",
        role="warns",
    ),
    ProbeSpec("gpu_clock_share", NVML, clock, fixed(1), role="shows"),
    ProbeSpec(
        "gpu_persistence", NVML, persistence, fixed(1), "sudo nvidia-smi -pm 1", bound="least", role="warns"
    ),
)
