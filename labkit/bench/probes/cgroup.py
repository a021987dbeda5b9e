"""Cgroup: what a container may use of the machine, from the limits of this process's own groups, v1 and v2.

A limit of any group above binds too, so every group up to the root of the mount is read. Docker's v1 mounts
show a container its own group as the root, whatever /proc/self/cgroup calls it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from labkit.bench.probes.probe import Machine, ProbeSpec, Reading, fixed
from labkit.bench.probes.source import by_path, joined

ROOT = "/sys/fs/cgroup"
OWN = "/proc/self/cgroup"
CPU_FILES = ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")
MEMORY_FILES = (
    "memory.max",
    "memory.current",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "memory.stat",
)
_MOUNTS = {"cpu": ("cpu", "cpu,cpuacct", "cpuacct,cpu"), "memory": ("memory",)}
# The kernel's word for no limit in v1 is the largest multiple of a page.
_UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class Groups:
    """The files of one controller in every group from this process's own up to the root of the mount."""

    controller: str
    files: tuple[str, ...]
    root: str = ROOT
    own: str = OWN

    @property
    def title(self) -> str:
        return f"{self.root} ({self.controller})"

    def read(self) -> str | None:
        try:
            lines = Path(self.own).read_text(errors="replace")
        except OSError:
            return None
        return joined(self._found(lines))

    def _found(self, lines: str) -> Iterator[tuple[str, Path]]:
        """Files under the number of their group: a group's own name may hold anything."""
        for number, folder in enumerate(self._folders(lines)):
            for name in self.files:
                if (folder / name).is_file():
                    yield f"{number}/{name}", folder / name

    def _folders(self, lines: str) -> Iterator[Path]:
        for line in lines.splitlines():
            controllers, _, group = line.partition(":")[2].partition(":")
            inside = PurePosixPath(group.lstrip("/"))
            if ".." in inside.parts:
                inside = PurePosixPath()
            if self.controller in controllers.split(","):
                yield from _upwards(self._mounts(_MOUNTS[self.controller]), inside)
            elif not controllers:
                yield from _upwards(self._mounts(("", "unified")), inside)

    def _mounts(self, names: tuple[str, ...]) -> list[Path]:
        """The mounts there are of the names that distributions give them; links lead to one of them."""
        found = [Path(self.root) / name for name in names]
        return [mount for mount in found if mount.is_dir() and not mount.is_symlink()]


def _upwards(mounts: list[Path], inside: PurePosixPath) -> Iterator[Path]:
    for mount in mounts:
        for group in (inside, *inside.parents):
            yield mount / group


def _by_group(text: str) -> dict[str, dict[str, str]]:
    """Group -> file -> text, where lines of a file are joined by newlines."""
    groups: dict[str, dict[str, str]] = {}
    for path, line in by_path(text):
        group, _, name = path.rpartition("/")
        files = groups.setdefault(group, {})
        files[name] = f"{files[name]}\n{line}" if name in files else line
    return groups


def quota_cores(text: str, machine: Machine) -> Reading | None:
    """The least quota in cores of any group. The machine's cores where none limits them."""
    quotas = [quota for files in _by_group(text).values() if (quota := _quota(files, machine)) is not None]
    if not quotas:
        return None
    least = min(quotas)
    shown = f"{least:g} of {machine.cores} cores" if least < machine.cores else "no limit"
    return Reading(least, shown)


def _quota(files: dict[str, str], machine: Machine) -> float | None:
    """Quota over period of `cpu.max` (v2) or `cpu.cfs_*_us` (v1); the cores where `max` or -1 limits none."""
    own = [files.get("cpu.cfs_quota_us", ""), files.get("cpu.cfs_period_us", "")]
    quota, period = files["cpu.max"].split() if files.get("cpu.max") else own
    if quota in ("max", "-1"):
        return float(machine.cores)
    if not (quota.isdecimal() and period.isdecimal()):
        return None
    return min(float(machine.cores), int(quota) / int(period))


def memory_free(text: str, machine: Machine) -> Reading | None:
    """The share of the tightest group's limit that is free or holds files that can be dropped."""
    shares = [share for files in _by_group(text).values() if (share := _free(files, machine)) is not None]
    return Reading(*min(shares)) if shares else None


def _free(files: dict[str, str], machine: Machine) -> tuple[float, str] | None:
    limit = files.get("memory.max") or files.get("memory.limit_in_bytes", "")
    used = files.get("memory.current") or files.get("memory.usage_in_bytes", "")
    if not (limit.isdecimal() and used.isdecimal()) or not 0 < int(limit) < min(
        _UNLIMITED, machine.memory_bytes
    ):
        return None
    stat = dict(re.findall(r"^(\w+) (\d+)$", files.get("memory.stat", ""), re.M))
    # v1 counts the groups below in `total_` names only.
    droppable = int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
    working = max(0, int(used) - droppable)
    free = max(0.0, 1 - working / int(limit))
    return free, f"{free:.0%} of {int(limit) / 2**30:.1f} GiB"


def throttling(text: str) -> dict[str, tuple[float, float]]:
    """Group -> periods and throttled periods so far, of every group that ever had a quota."""
    counts: dict[str, tuple[float, float]] = {}
    for group, files in _by_group(text).items():
        found = dict(re.findall(r"^(\w+) (\d+)", files.get("cpu.stat", ""), re.M))
        if "nr_periods" in found:
            counts[group] = (float(found["nr_periods"]), float(found.get("nr_throttled", 0)))
    return counts


CPU = Groups("cpu", CPU_FILES)
MEMORY = Groups("memory", MEMORY_FILES)
CGROUP = (
    ProbeSpec(
        "cgroup_cpu_cores",
        CPU,
        quota_cores,
        lambda m: float(m.cores),
        "set OMP_NUM_THREADS to the quota, or raise it (docker run --cpus)",
        bound="least",
        role="warns",
    ),
    ProbeSpec(
        "cgroup_memory_free_share",
        MEMORY,
        memory_free,
        fixed(0.35),
        "raise this container's memory limit, or close what runs in it",
        bound="least",
    ),
)
