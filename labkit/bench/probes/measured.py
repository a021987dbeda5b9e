"""Measured: swap and free memory as psutil gives them, where a system's own probe of them says nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass

import psutil

from labkit.bench.probes.probe import Machine, ProbeSpec, Reading, fixed


@dataclass(frozen=True, slots=True)
class Psutil:
    """psutil's numbers as JSON; None where it has none."""

    title: str = "psutil"

    def read(self) -> str | None:
        try:
            memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        except (OSError, RuntimeError, ValueError, psutil.Error):
            return None
        return json.dumps({"available": memory.available, "total": memory.total, "swap_used": swap.used})


def swap_used(text: str, _machine: Machine) -> Reading | None:
    """Used swap in MiB."""
    return Reading(json.loads(text)["swap_used"] / 2**20)


def memory_free(text: str, _machine: Machine) -> Reading | None:
    """Available memory as a share of all."""
    found = json.loads(text)
    return Reading(found["available"] / found["total"])


_CLOSE = "close programs that hold memory"
MEASURED = (
    ProbeSpec("swap_used_mib", Psutil(), swap_used, fixed(512), _CLOSE),
    ProbeSpec("memory_free_share", Psutil(), memory_free, fixed(0.35), _CLOSE, bound="least"),
)
