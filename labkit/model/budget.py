"""Budget: the memory that a model may take on this machine. Measures no speed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

from labkit.model.backend import Device

# A model that takes more than this share of the memory leaves the system too little.
SHARE = 0.75
GIB = 1 << 30
# The limit of a container, of control groups 2 and 1. Without a limit the first holds `max`, the second 2^63.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(frozen=True, slots=True)
class Budget:
    """nbytes: what may be used. reason: how that came about, in words."""

    nbytes: int
    reason: str


def stated_budget(gib: float) -> Budget:
    """What somebody said that a model may take."""
    return Budget(int(gib * GIB), f"{gib:g} GiB as stated")


def device_budget(device: Device) -> Budget:
    """What this machine leaves a model: the working set that Metal recommends, else a share of the memory."""
    import mlx.core as mx

    facts = mx.device_info()
    recommended = facts.get("max_recommended_working_set_size")
    if device == "metal" and recommended:
        return Budget(
            int(recommended), f"{int(recommended) / GIB:.1f} GiB, the working set that Metal recommends"
        )
    total = int(facts.get("total_memory") or 0) if device == "cuda" else 0
    where = "the card's memory" if total else "this machine's memory"
    total = total or _main_memory()
    return Budget(int(SHARE * total), f"{SHARE:.0%} of {total / GIB:.1f} GiB, {where}")


def _main_memory() -> int:
    """Bytes of memory, no more than a container's limit."""
    limits = (text for path in _LIMITS if path.is_file() and (text := path.read_text().strip()).isdigit())
    return min((psutil.virtual_memory().total, *map(int, limits)))
