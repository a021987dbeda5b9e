"""Quietness on this machine: sources that hang or are missing, what is read once, and what a visit costs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from labkit.bench import quiet
from labkit.bench.probes import cgroup, nvml, processes, visit
from labkit.bench.probes.linux import LINUX, MEMORY
from labkit.bench.probes.macos import MACOS
from labkit.bench.probes.nvidia import NVIDIA
from labkit.bench.probes.probe import Machine
from labkit.bench.probes.source import Command, File, Files, Source
from labkit.bench.quiet import (
    Usage,
    all_probes,
    probe_specs,
    read_probes,
    standing_probes,
    usage,
    visit_probes,
)

MACHINE = Machine(cores=2, memory_bytes=8 * 2**30, pid=os.getpid())
PYTHON = sys.executable


def test_a_command_that_hangs_is_given_up() -> None:
    started = time.monotonic()
    assert Command((PYTHON, "-c", "import time; time.sleep(60)"), limit_s=0.3).read() is None
    assert time.monotonic() - started < 30  # of the 60 s that it would take: a machine under load may be slow


def test_a_command_that_is_missing_or_fails_says_nothing() -> None:
    assert Command(("no-such-command-of-any-system",)).read() is None
    assert Command((PYTHON, "-c", "print(1); raise SystemExit(3)"), limit_s=60).read() is None
    assert Command(("nul\0byte",)).read() is None


def test_a_command_runs_in_the_locale_c_and_undecodable_bytes_are_no_error() -> None:
    code = "import os, sys; sys.stdout.buffer.write(os.environ['LC_ALL'].encode() + b'\\xff')"
    assert Command((PYTHON, "-c", code), limit_s=60).read() == "C\ufffd"


def test_files_are_read_with_their_names_and_unreadable_ones_left_out(tmp_path: Path) -> None:
    for cpu in ("cpu0", "cpu1"):
        (tmp_path / cpu).mkdir()
        (tmp_path / cpu / "governor").write_text("performance\n")
    (tmp_path / "cpu2" / "governor").mkdir(parents=True)
    found = Files(str(tmp_path), ("cpu[0-9]*/governor", "none/*")).read()
    assert found == "cpu0/governor:performance\ncpu1/governor:performance\n"
    assert Files(str(tmp_path), ("none/*",)).read() is None
    assert File(str(tmp_path / "none")).read() is None


def test_groups_are_read_up_to_the_root_of_the_mount(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/user.slice:weird/job\n")
    group = tmp_path / "fs" / "user.slice:weird" / "job"
    group.mkdir(parents=True)
    (group / "cpu.max").write_text("max 100000\n")
    (group.parent / "cpu.max").write_text("50000 100000\n")
    text = cgroup.Groups("cpu", cgroup.CPU_FILES, str(tmp_path / "fs"), str(own)).read()
    assert text == "0/cpu.max:max 100000\n1/cpu.max:50000 100000\n"
    reading = cgroup.quota_cores(text, MACHINE)
    assert reading is not None and reading.value == 0.5


@pytest.mark.parametrize("group", ["/docker/0123", "/", "/../../outside", ""])
def test_a_container_of_v1_sees_its_group_as_the_root(tmp_path: Path, group: str) -> None:
    own, mount = tmp_path / "own", tmp_path / "fs" / "cpu,cpuacct"
    own.write_text(f"4:cpu,cpuacct:{group}\n3:memory:/\nnonsense\n")
    mount.mkdir(parents=True)
    (tmp_path / "fs" / "cpu").symlink_to(mount)
    (mount / "cpu.cfs_quota_us").write_text("100000\n")
    (mount / "cpu.cfs_period_us").write_text("100000\n")
    text = cgroup.Groups("cpu", cgroup.CPU_FILES, str(tmp_path / "fs"), str(own)).read()
    assert text is not None and text.count("cfs_quota_us:100000") == 1
    reading = cgroup.quota_cores(text, MACHINE)
    assert reading is not None and reading.value == 1.0


def test_no_groups_at_all(tmp_path: Path) -> None:
    assert cgroup.Groups("cpu", cgroup.CPU_FILES, str(tmp_path), str(tmp_path / "none")).read() is None


def test_every_source_is_read_once() -> None:
    asked: Counter[str] = Counter()

    def read(source: Source) -> str | None:
        asked[source.title] += 1

    specs = probe_specs("darwin")
    assert {probe.name for probe in read_probes(specs, MACHINE, read)} == {spec.name for spec in specs}
    assert set(asked.values()) == {1}
    assert asked.keys() >= {"pmset -g therm", "sysctl vm.swapusage hw.memsize vm.loadavg"}


def test_psutil_answers_where_the_systems_own_probe_says_nothing() -> None:
    nothing = read_probes(MACOS, MACHINE, lambda source: source.read() if source.title == "psutil" else None)
    by_name = {probe.name: probe for probe in nothing}
    assert by_name["memory_free_share"].available
    assert not by_name["cpu_speed_limit_percent"].available
    assert len(by_name) == len(nothing)


def test_nvml_is_asked_only_where_mlx_computes_on_a_gpu() -> None:
    asked: list[str] = []
    read_probes(NVIDIA, MACHINE, lambda source: asked.append(source.title))
    assert "NVML" not in asked
    read_probes(NVIDIA, Machine(2, 2**33, 1, gpu="0"), lambda source: asked.append(source.title))
    assert "NVML" in asked


@pytest.mark.parametrize(
    ("build", "environ", "gpu"),
    [
        ("cpu", {}, None),
        ("cuda", {}, "0"),
        ("cuda", {"CUDA_VISIBLE_DEVICES": "3,1"}, "3"),
        ("cuda", {"CUDA_VISIBLE_DEVICES": ""}, None),
    ],
)
def test_which_gpu_mlx_computes_on(
    monkeypatch: pytest.MonkeyPatch, build: str, environ: dict[str, str], gpu: str | None
) -> None:
    monkeypatch.setattr(quiet, "installed_build", lambda: build)
    monkeypatch.setattr(sys, "platform", "linux")
    assert quiet.machine(environ).gpu == gpu


@pytest.mark.parametrize(
    ("order", "by_bus"), [(None, False), ("FASTEST_FIRST", False), ("PCI_BUS_ID", True), ("", False)]
)
def test_how_cuda_numbers_its_cards(order: str | None, by_bus: bool) -> None:
    environ = {} if order is None else {"CUDA_DEVICE_ORDER": order}
    assert quiet.machine(environ).gpu_by_bus is by_bus


def test_standing_probes_are_those_that_this_machine_has() -> None:
    found = standing_probes(seconds=0.05)
    names = [probe.name for probe in found]
    assert names[0] == "busy_cores"
    assert {"swap_used_mib", "memory_free_share"} <= set(names)
    assert len(names) == len(set(names))
    assert all(probe.available for probe in found)
    assert len(all_probes(seconds=0.05)) >= len(found)


def test_another_busy_process_is_seen() -> None:
    spin = subprocess.Popen([PYTHON, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    try:
        assert spin.stdout is not None
        spin.stdout.readline()
        busy = all_probes(seconds=1.0)[0]
    finally:
        spin.kill()
        spin.communicate()
    # It is always ready to run, so the core that it is on is busy: half of it allows for coarse counting.
    assert busy.value > 0.5


def test_the_largest_foreign_process_is_not_the_family() -> None:
    text = processes.Table().read()
    assert text is not None
    found = processes.largest_foreign(text, MACHINE)
    assert found is not None
    assert str(os.getpid()) not in found.shown.replace(",", " ").split()


def test_only_a_reasoned_few_probes_judge_a_server() -> None:
    judging = {spec.name for spec in (*LINUX, *cgroup.CGROUP) if spec.role == "judges"}
    assert judging == {"swap_used_mib", "memory_free_share", "cgroup_memory_free_share"}


def test_a_probe_that_only_warns_leaves_the_machine_quiet() -> None:
    text = "AC/type:Mains\nAC/online:0\nBAT0/type:Battery\nBAT0/status:Discharging\n"
    specs = [spec for spec in LINUX if spec.name == "on_battery"]
    found = read_probes(specs, MACHINE, lambda source: None if source == MEMORY else text)[0]
    assert (found.value, found.ok, found.within, found.role) == (1, True, False, "warns")


def test_a_visit_counts_what_this_machine_has_and_nothing_else() -> None:
    before = usage(())
    found = visit_probes(before, usage(()), seconds=1.0)
    standing = ["foreign_cpu_share", "swap_growth_mib", "run_swap_growth_mib"]
    assert [probe.name for probe in found[:3]] == standing
    assert {probe.name for probe in found[3:]} <= {spec.name for spec in visit.VISIT}


def test_a_throttled_visit_is_not_quiet_and_a_short_one_not_judged() -> None:
    before = Usage(0.0, 0.0, 0, {"cgroup_periods": 0.0, "cgroup_throttled": 0.0})
    after = Usage(0.0, 0.0, 0, {"cgroup_periods": 10.0, "cgroup_throttled": 9.0})
    assert [probe.name for probe in visit_probes(before, after, 1.0) if not probe.ok] == [
        "cgroup_throttled_share"
    ]
    assert all(probe.ok for probe in visit_probes(before, after, 0.1))


def test_damaged_snapshots_of_a_gpu_count_nothing() -> None:
    class Broken:
        title = "broken"

        def read(self) -> str:
            return text

    for text in ('{"devices": []}', '{"devices": [[1]]}', '{"devices": [1]}', "[]", "{"):
        counted = visit.read_counters(Machine(2, 2**33, 1, gpu="0"), Broken(), Broken(), Broken())
        assert counted == {}, text


def test_whose_process() -> None:
    assert nvml.whose(os.getpid()) == "ours"
    assert nvml.whose(os.getppid()) == "ours"
    child = subprocess.Popen([PYTHON, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert nvml.whose(child.pid) == "ours"
    finally:
        child.communicate()
    assert nvml.whose(child.pid) == "hidden"
