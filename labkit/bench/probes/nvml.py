"""NVML: what NVIDIA's driver says of every GPU, as a JSON text that `nvidia` judges.

A question that a card or driver does not answer (MIG, virtual GPUs) is left out of the snapshot.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import psutil

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
        "pci": _pci(nvml, handle),
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


def _pci(nvml: Any, handle: Any) -> str | None:
    """The bus id as nvidia-smi shows it, such as `00000000:3B:00.0`."""
    place = getattr(_ask(nvml, "GetPciInfo", handle), "busId", None)
    return place.decode(errors="replace") if isinstance(place, bytes) else place


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


NVML = Nvml()
