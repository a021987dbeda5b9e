"""NVIDIA: clocks, heat, slowdowns and other processes of the GPU that mlx computes on.

Which card that is follows from `CUDA_VISIBLE_DEVICES`; what cannot be told apart is not available. Everything
here is pure, on the snapshots that `nvml` takes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from labkit.bench.probes.nvml import NVML
from labkit.bench.probes.probe import Machine, Parse, ProbeSpec, Reading, fixed

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
Card = Mapping[str, Any]


def device(text: str, machine: Machine) -> Card | None:
    """The GPU that mlx computes on, as NVML tells of it.

    None where it computes on none, or on one that NVML does not name. CUDA numbers its cards by the PCI bus
    or, by default, the fastest first: of several models a number is then no card's (CUDA_DEVICE_ORDER).
    """
    devices, wanted = json.loads(text)["devices"], machine.gpu
    if wanted is None:
        return None
    if wanted.isdecimal():
        told = machine.gpu_by_bus or not _differ(devices)
        return by_bus(devices)[int(wanted)] if told else None
    named = [card for card in devices if str(card.get("uuid", "")).startswith(wanted)]
    return named[0] if len(named) == 1 else None


def by_bus(devices: list[Card]) -> list[Card]:
    """The cards in the order of their PCI bus, which is NVML's own where a card does not tell its place."""
    if not all("pci" in card for card in devices):
        return devices
    return sorted(devices, key=lambda card: str(card["pci"]).upper())


def _of_card(read: Callable[[Card], Reading | None]) -> Parse:
    """A parser of the card that mlx computes on. Where cards differ the reading says which one it is of."""

    def parse(text: str, machine: Machine) -> Reading | None:
        card = device(text, machine)
        reading = read(card) if card is not None else None
        if card is None or reading is None or not _differ(json.loads(text)["devices"]):
            return reading
        named = " ".join(str(card[key]) for key in ("name", "pci") if key in card)
        return replace(reading, shown=f"{reading.shown} on {named}")

    return parse


def _differ(devices: list[Card]) -> bool:
    return len({card.get("name") for card in devices}) > 1


def reasons_in_words(mask: int) -> str:
    """The reasons of a mask, the slowdowns first."""
    known = {**SLOWDOWNS, **OTHERS}
    named = [word for bit, word in known.items() if mask & bit]
    unknown = mask & ~sum(known)
    return ", ".join([*named, *([f"0x{unknown:x}"] if unknown else [])]) or "none"


@_of_card
def slowdown(gpu: Card) -> Reading | None:
    """1 where a slowdown holds the clock down now; a power cap or idling is none."""
    if "reasons" not in gpu:
        return None
    mask = int(gpu["reasons"])
    return Reading(float(bool(mask & sum(SLOWDOWNS))), reasons_in_words(mask))


@_of_card
def other_processes(gpu: Card) -> Reading | None:
    """Processes of others that compute on the GPU; those of another namespace may be our own."""
    if "processes" not in gpu:
        return None
    others, hidden = (gpu["processes"].count(kind) for kind in ("other", "hidden"))
    return Reading(others, f"{others}, and {hidden} outside this container" if hidden else str(others))


@_of_card
def busy(gpu: Card) -> Reading | None:
    """The share of the driver's last sample (up to a second) in which a kernel ran."""
    if "busy_percent" not in gpu:
        return None
    return Reading(int(gpu["busy_percent"]) / 100, f"{gpu['busy_percent']}%")


@_of_card
def heat(gpu: Card) -> Reading | None:
    """Degrees C below the temperature at which the card slows down; recent cards tell the margin itself."""
    if "temperature_c" not in gpu:
        return None
    margin = int(gpu.get("slowdown_c", 0)) - int(gpu["temperature_c"])
    if "margin_c" in gpu:
        margin = int(gpu["margin_c"])
    elif int(gpu.get("slowdown_c", 0)) <= 0:
        return None
    return Reading(margin, f"{gpu['temperature_c']} C, {margin} C below slowdown")


@_of_card
def clock(gpu: Card) -> Reading | None:
    """The SM clock as a share of its maximum; low is only idle."""
    if not {"sm_mhz", "sm_max_mhz"} <= gpu.keys():
        return None
    return Reading(int(gpu["sm_mhz"]) / int(gpu["sm_max_mhz"]), f"{gpu['sm_mhz']} of {gpu['sm_max_mhz']} MHz")


@_of_card
def persistence(gpu: Card) -> Reading | None:
    """Whether the driver stays loaded between processes (persistence mode)."""
    if gpu.get("persistence") not in (0, 1):
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
