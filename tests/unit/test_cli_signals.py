"""Commands as processes: interruptions, kills, two at once, full disks, plain surroundings."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from labkit.bench.lease import device_lease
from labkit.core.events import Event, Note, Sink
from labkit.engine.shield import uninterrupted
from labkit.lab.measuring.keep import ResultsUnwritable
from labkit.lab.measuring.run import run
from labkit.store.read import read_record, read_records
from tests.unit.command_line import EXPERIMENT, SLEEPY, Running, files, kept_handlers, make_lab, until
from tests.unit.null_experiment import null_experiment

SLOW_PIP = """
import os, pathlib, sys, time
pathlib.Path(os.environ["PIP_STARTED"]).write_text(str(os.getpid()))
pathlib.Path(sys.argv[-1], "half.whl").write_bytes(b"half")
time.sleep(60)
"""
DEMO = ("kv8-at-256.py", "mkl-prefill.py")


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A lab of its own folder, so that scratch files and the lease lie outside it."""
    return make_lab(tmp_path / "lab", SLEEPY, "mine.py", *DEMO)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_fetch_leaves_no_model_and_no_pip(tmp_path: Path, number: int) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text(SLOW_PIP)
    started = tmp_path / "started"
    environ = {
        "PYTHONPATH": str(tmp_path),
        "LABKIT_HOME": str(tmp_path / "home"),
        "PIP_STARTED": str(started),
    }
    command = Running(tmp_path, "models", "get", "smollm2", **environ)
    until(lambda: started.exists() and started.read_text(), 30)
    ended = command.stop(number)
    assert (ended.code, ended.out, ended.message()) == (130, "", "labkit: interrupted\n")
    assert files(tmp_path / "home") == set()
    assert not psutil.pid_exists(int(started.read_text()))


@pytest.mark.parametrize(
    ("moment", "number"),
    [("load ...", signal.SIGINT), ("warm-up ...", signal.SIGTERM), ("load ...", signal.SIGHUP)],
)
def test_a_run_interrupted_before_its_first_visit_leaves_nothing(
    tmp_path: Path, lab: Path, moment: str, number: int
) -> None:
    before = files(lab)
    command = Running(tmp_path, "run", lab / "experiments" / "mine.py", "--root", lab)
    command.wait_for(moment)
    ended = command.stop(number)
    assert (ended.code, ended.out) == (130, "")
    assert ended.message() == "labkit: the run was interrupted; nothing had been measured\n"
    assert files(lab) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_interrupted_in_its_visits_keeps_them(tmp_path: Path, lab: Path, number: int) -> None:
    command = Running(tmp_path, "run", lab / "experiments" / "mine.py", "--root", lab, "--pairs", "50")
    command.wait_for("visits ...")
    threading.Event().wait(1.0)
    threading.Timer(0.02, command.process.send_signal, (number,)).start()  # an impatient second one
    ended = command.stop(number)
    assert (ended.code, ended.out) == (130, "")
    (stored,) = read_records(lab).stored
    kept = f"what was measured is kept in {lab / stored.path}"
    again = "  next:    to go on with it: labkit run experiments/mine.py --resume\n"
    assert ended.message() == f"labkit: the run was interrupted; {kept}\n{again}"
    assert stored.record.state == "partial"
    assert 1 <= len([v for v in stored.record.visits if v.status == "ok"]) <= 3
    assert not [name for name in files(lab) if "/." in name]


@pytest.mark.parametrize("arguments", [("plan-run", "experiments/mine.py"), ("demo",)], ids=lambda a: a[0])
def test_an_interrupted_pilot_and_demo_end_with_one_message(
    tmp_path: Path, lab: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab)
    command = Running(tmp_path, *arguments)
    command.wait_for("visits ...")
    ended = command.stop(signal.SIGINT)
    assert ended.code == 130
    assert "interrupted" in ended.message()
    assert len(read_records(lab).stored) == 0


def test_a_killed_run_leaves_no_worker_and_a_store_that_opens(tmp_path: Path, lab: Path) -> None:
    # One token a second: the workers would go on for 16 s if nothing ended them.
    file = lab / "experiments" / "mine.py"
    file.write_text(SLEEPY.replace("decode_tps=40", "decode_tps=1"))
    command = Running(tmp_path, "run", file, "--root", lab)
    command.wait_for("warm-up ...")
    workers = command.workers()
    command.process.kill()
    command.process.wait()
    assert len(workers) == 2
    assert not psutil.wait_procs(workers, timeout=3)[1]
    assert Running(tmp_path, "store", "rebuild", "--root", lab).end().code == 0


def test_a_run_that_waits_for_the_device_can_be_interrupted(tmp_path: Path, lab: Path) -> None:
    with device_lease("another run", tmp_path / "labkit-device.lock"):
        command = Running(tmp_path, "run", lab / "experiments" / "mine.py", "--root", lab)
        command.wait_for("waiting for the device: held by another run")
        ended = command.stop(signal.SIGINT)
    assert (ended.code, ended.message()) == (130, "labkit: interrupted\n")


def test_two_runs_at_once_both_land(tmp_path: Path, lab: Path) -> None:
    file = lab / "experiments" / "mine.py"
    file.write_text(EXPERIMENT)
    command = ("run", file, "--root", lab, "--pairs", "1")
    both = [Running(tmp_path, *command) for _ in range(2)]
    ended = [running.end() for running in both]
    assert [e.code for e in ended] == [0, 0], ended
    assert sum("waiting for the device: held by labkit run null-ab (process" in e.err for e in ended) == 1
    records = read_records(lab)
    assert [r.state for r in records.records] == ["complete", "complete"]
    assert records.damaged == ()
    assert "2 records indexed" in Running(tmp_path, "store", "rebuild", "--root", lab).end().out


def test_a_run_in_plain_surroundings(tmp_path: Path) -> None:
    """No terminal, no colour, the C locale, an ASCII stdout, a home that cannot be written, an odd path."""
    lab = make_lab(tmp_path / "mein Läbchen [1]", SLEEPY.replace("decode_tps=40", "decode_tps=900"))
    plain = {"NO_COLOR": "1", "LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "HOME": "/dev/null"}
    ended = Running(tmp_path, "run", lab / "experiments" / "mine.py", "--root", lab, **plain).end()
    assert ended.code == 0, ended.err
    assert "\x1b" not in ended.out + ended.err
    assert "mein L\\xe4bchen [1]" in ended.out
    assert "null-ab: undecided" in ended.out
    names = ("record:", "picture:", "baseline", "candidate")  # never broken, so that they can be copied
    assert max(len(line) for line in ended.out.splitlines() if not line.startswith(names)) <= 80
    assert set(ended.err.split()) == {"load", "ceilings", "parity", "warm-up", "visits", "..."}
    assert Running(tmp_path, "frontier", "--root", lab, **plain).end().code == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A lab whose results folder is a file system of 4 MiB."""
    lab = make_lab(tmp_path / "lab")
    results = lab / "results"
    results.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None or sys.platform != "linux":
        pytest.skip("mounting a small file system needs root on Linux")
    command = [mount, "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(results)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this root may not mount")
    try:
        yield lab
    finally:
        subprocess.run(["umount", str(results)], check=True)


def fill(folder: Path, *, leave: int = 0) -> None:
    """Fill the file system of a folder up to `leave` bytes."""
    with (folder / "filler").open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        file.truncate(file.tell() - leave)


def fill_at_visits(folder: Path, notes: list[str], *, leave: int = 0) -> Sink:
    """A sink that fills a disk as the visits begin and keeps the notes."""

    def sink(event: Event) -> None:
        if isinstance(event, Note):
            notes.append(event.text)
        elif event.task == "visits" and event.done == 0:
            fill(folder, leave=leave)

    return sink


def test_a_full_disk_is_told_before_the_run(tmp_path: Path, small_disk: Path) -> None:
    fill(small_disk / "results")
    ended = Running(tmp_path, "run", small_disk / "experiments" / "mine.py", "--root", small_disk).end()
    message = ended.message()
    assert ended.code == 1
    assert "room for a record (2 MiB) was needed before the run" in message
    assert "No space left on device" in message


def test_a_disk_that_fills_during_the_run_loses_no_record(
    tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sink = fill_at_visits(small_disk / "results", [])
    with pytest.raises(ResultsUnwritable, match="No space left on device") as full:
        run(null_experiment(), root=small_disk, pairs=1, sink=sink, lease=tmp_path / "lease")
    assert full.value.path is not None
    assert f"it is kept in {full.value.path}" in full.value.need
    assert read_record(full.value.path).state == "complete"
    assert read_records(small_disk).stored == ()


def test_a_disk_too_small_for_the_index_keeps_the_record_and_says_so(
    tmp_path: Path, small_disk: Path
) -> None:
    notes: list[str] = []
    sink = fill_at_visits(small_disk / "results", notes, leave=2**18)
    done = run(null_experiment(), root=small_disk, pairs=1, sink=sink, lease=tmp_path / "lease")
    assert read_record(done.path).state == "complete"
    assert any("the record is kept, but results/lab.duckdb was not refreshed" in note for note in notes)
    assert files(small_disk / "results") == {"filler", f"{done.path.parent.name}/{done.path.name}"}


def test_the_shield_holds_signals_back_and_delivers_the_first_after_the_work() -> None:
    finished: list[int] = []

    def work(deliver: bool) -> None:
        with uninterrupted(deliver=deliver):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            finished.append(1)

    with kept_handlers():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt):
            work(deliver=True)
        work(deliver=False)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert finished == [1, 1]


def test_a_shield_within_another_leaves_the_signal_to_that() -> None:
    finished: list[int] = []

    def work() -> None:
        with uninterrupted():
            with uninterrupted(signals=(signal.SIGINT,)):
                signal.raise_signal(signal.SIGINT)
            with uninterrupted(deliver=False):
                signal.raise_signal(signal.SIGTERM)
            finished.append(1)

    with kept_handlers():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt):
            work()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert finished == [1]


def test_the_entry_catches_an_interruption_before_anything_heavy_is_imported() -> None:
    code = (
        "import sys, labkit.cli.main; print({'typer', 'rich', 'numpy', 'labkit.cli.app'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
