"""Processes: the largest one that belongs neither to this process, nor to who started it, nor to what it did.

No program is named, since a finding may go into a record: the process number says where to look.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import psutil

from labkit.bench.probes.probe import Machine, ProbeSpec, Reading
from labkit.bench.probes.source import Command, Source

FOREIGN_LIMIT_MIB = 2048


@dataclass(frozen=True, slots=True)
class Table:
    """Lines `pid ppid resident-KiB` of every process that can be seen, as `ps -axo pid=,ppid=,rss=`."""

    title: str = "the process table"

    def read(self) -> str | None:
        lines = []
        for process in psutil.process_iter(["pid", "ppid", "memory_info"]):
            memory = process.info["memory_info"]
            if memory is not None:
                lines.append(f"{process.info['pid']} {process.info['ppid'] or 0} {memory.rss // 1024}")
        return "\n".join(lines)


def largest_foreign(text: str, machine: Machine) -> Reading | None:
    """The resident MiB of the largest foreign process."""
    rows = [tuple(int(part) for part in line.split()) for line in text.splitlines() if line.strip()]
    parents = {pid: parent for pid, parent, _ in rows}
    if machine.pid not in parents:
        return None
    ours = family(parents, machine.pid)
    foreign = [(kib, pid) for pid, _, kib in rows if pid not in ours]
    if not foreign:
        return Reading(0.0, "none")
    kib, pid = max(foreign)
    return Reading(kib / 1024, f"{kib / 2**20:.1f} GiB in process {pid}")


def family(parents: dict[int, int], pid: int) -> set[int]:
    """A process, all above it and all below it."""
    above = set()
    upwards: int | None = pid
    while upwards is not None and upwards not in above:
        above.add(upwards)
        upwards = parents.get(upwards)
    return above | {p for p in parents if _is_below(parents, p, pid)}


def _is_below(parents: dict[int, int], pid: int, top: int) -> bool:
    seen: set[int] = set()
    while pid not in seen and pid in parents:
        if pid == top:
            return True
        seen.add(pid)
        pid = parents[pid]
    return pid == top


def _source() -> Source:
    """On macOS other users' processes can be seen by `ps` alone."""
    return Command(("ps", "-axo", "pid=,ppid=,rss=")) if sys.platform == "darwin" else Table()


def _limit(machine: Machine) -> float:
    """2 GiB as on the reference system, an eighth of the memory where that is more."""
    return max(FOREIGN_LIMIT_MIB, machine.memory_bytes / 2**20 / 8)


PROCESSES = (
    ProbeSpec("largest_foreign_mib", _source(), largest_foreign, _limit, "close the process of that number"),
)
