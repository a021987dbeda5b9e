"""Processes: the largest one that belongs neither to this process, nor to who started it, nor to what it did.

A finding may go into a record, so of a program only its own name is told: no folder, argument or user.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import psutil

from labkit.bench.probes.probe import Machine, ProbeSpec, Reading, fixed
from labkit.bench.probes.source import Command, Source

FOREIGN_LIMIT_MIB = 2048
_LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class Table:
    """Lines `pid ppid resident-KiB name` of every process that can be seen, as `ps` gives them."""

    title: str = "the process table"

    def read(self) -> str | None:
        lines = []
        for process in psutil.process_iter(["pid", "ppid", "memory_info", "name"]):
            memory = process.info["memory_info"]
            if memory is not None:
                numbers = f"{process.info['pid']} {process.info['ppid'] or 0} {memory.rss // 1024}"
                lines.append(f"{numbers} {_printable(process.info['name'] or '')}")
        return "\n".join(lines)


def largest_foreign(text: str, machine: Machine) -> Reading | None:
    """The resident MiB of the largest foreign process."""
    rows = [_row(line) for line in text.splitlines() if line.strip()]
    parents = {pid: parent for pid, parent, _, _ in rows}
    if machine.pid not in parents:
        return None
    ours = family(parents, machine.pid)
    foreign = [(kib, pid, name) for pid, _, kib, name in rows if pid not in ours]
    if not foreign:
        return Reading(0.0, "none")
    kib, pid, name = max(foreign)
    return Reading(kib / 1024, f"{kib / 2**20:.1f} GiB in process {pid}{name and f', {name}'}")


def _row(line: str) -> tuple[int, int, int, str]:
    """Process, parent, resident KiB and name, empty where none is told; raise ValueError for another line."""
    pid, parent, kib, *rest = line.split(None, 3)
    return int(pid), int(parent), int(kib), _printable("".join(rest))


def _printable(name: str) -> str:
    """The last part of a program's path, on one line and without control characters."""
    last = " ".join(name.split()).rpartition("/")[2]
    return "".join(c for c in last if c.isprintable())[:_LONGEST_NAME]


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
    return PS if sys.platform == "darwin" else Table()


# A column without a head ends its option: POSIX reads what follows `=` as the head.
PS = Command(("ps", "-ax", "-o", "pid=", "-o", "ppid=", "-o", "rss=", "-o", "comm="))
PROCESSES = (
    ProbeSpec(
        "largest_foreign_mib", _source(), largest_foreign, fixed(FOREIGN_LIMIT_MIB), "close that process"
    ),
)
