"""Everything that can be wrong with a machine: one clear message or plain success, from each command."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from labkit.core.records import Record
from labkit.lab.measuring.run import run
from labkit.lab.measuring.scrub import scrub
from labkit.store.journal import journal_files
from labkit.store.query import results
from labkit.store.read import read_records
from tests.unit.command_line import EXPERIMENT, SLEEPY, STOPS, Ended, Running, files, make_lab, until

QUICK = EXPERIMENT.replace("pairs=2", "pairs=1")
LONG = SLEEPY.replace("pairs=2", "pairs=30")
NO_UTF8 = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
Environ = Mapping[str, str | None]

# What a command is given beyond its --root, and what its output says where it succeeds.
COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("run", "experiments/mine.py"),
    "experiments": ("experiments",),
    "store rebuild": ("store", "rebuild"),
}
SAYS = {"run": "null-ab: undecided", "experiments": "null-ab", "store rebuild": "indexed"}
SURROUNDINGS: dict[str, Environ] = {
    "no HOME": {"HOME": None},
    "a HOME that is nowhere": {"HOME": "/nowhere/at/all", "XDG_CACHE_HOME": None},
    "no locale": NO_UTF8,
    "a dumb terminal": {"TERM": "dumb", "PYTHONWARNINGS": "error::UserWarning"},
    "no TERM, no PATH": {"TERM": None, "PATH": "/nowhere"},
}


def ended(lab: Path, *arguments: str, environ: Environ | None = None, closed: bool = False) -> Ended:
    """Run a command in a lab with no terminal anywhere. environ: changes, None takes a variable away.

    closed: start it with its three standard streams closed, as some job starters do.
    """
    changed = {**os.environ, "TMPDIR": str(lab.parent), "COLUMNS": "80", **(environ or {})}
    out, err = lab.parent / "out", lab.parent / "err"
    command = [sys.executable, "-m", "labkit.cli.main", *arguments]
    if closed:
        command = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]
    with out.open("w") as stdout, err.open("w") as stderr:
        code = subprocess.run(
            command,
            cwd=lab,
            env={k: v for k, v in changed.items() if v is not None},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            timeout=120,
            check=False,
            start_new_session=True,
        ).returncode
    return Ended(code, out.read_text(errors="replace"), err.read_text(errors="replace"))


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A lab in a folder whose name has spaces, brackets, quotes and letters that ASCII lacks."""
    return make_lab(tmp_path / "mein Läb 'größer' [1] 実験", QUICK)


def complete(lab: Path) -> list[Record]:
    loaded = read_records(lab)
    assert loaded.damaged == ()
    return [record for record in loaded.records if record.state == "complete"]


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_commands_succeed_in_poor_surroundings(lab: Path, surroundings: str) -> None:
    for name, arguments in COMMANDS.items():
        done = ended(lab, *arguments, environ=SURROUNDINGS[surroundings])
        assert done.code == 0, done.err
        assert "Traceback" not in done.err
        assert SAYS[name] in done.out
        assert "\x1b" not in done.out + done.err
        wide = [line for line in done.out.splitlines() if len(line) > 80]
        assert all(line.startswith(("record:", "picture:", "baseline", "candidate")) for line in wide)
    (record,) = complete(lab)
    assert "実験" not in record.notes
    assert journal_files(lab) == ()


def test_commands_succeed_with_their_standard_streams_closed(lab: Path) -> None:
    for arguments in COMMANDS.values():
        assert ended(lab, *arguments, closed=True).code == 0
    assert len(complete(lab)) == 1


@pytest.mark.parametrize("arguments", [("experiments",), ("experiments", "--json"), ("store", "rebuild")])
def test_a_reader_that_stops_reading_is_no_error(lab: Path, arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "labkit.cli.main", *arguments]
    with subprocess.Popen(
        command, cwd=lab, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert "Traceback" not in said and "BrokenPipe" not in said
    assert "labkit: " not in said


def test_an_experiment_whose_file_name_ascii_lacks_runs_stops_and_goes_on(lab: Path) -> None:
    (lab / "experiments" / "mine.py").rename(lab / "experiments" / "größer.py")
    (lab / "experiments" / "größer.py").write_text(LONG.replace("pairs=30", "pairs=3"), encoding="utf-8")
    command = Running(lab.parent, "run", lab / "experiments" / "größer.py", "--root", lab, **NO_UTF8)
    command.wait_for("visits ...")
    until(lambda: _visits(lab) >= 3, 30)
    command.process.kill()
    command.process.wait()
    done = ended(lab, "run", "--resume", environ=NO_UTF8)
    assert done.code == 0, done.err
    assert len(complete(lab)) == 1


def _visits(lab: Path) -> int:
    return sum(path.read_bytes().count(b'"kind":"visit"') for path in journal_files(lab))


def test_a_home_that_nobody_knows_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(nobody))
    assert scrub("at /srv/lab/file.py", Path("/srv/lab")) == "at ~/file.py"


def test_a_clock_that_was_set_back_between_two_runs_loses_neither(tmp_path: Path) -> None:
    root = make_lab(tmp_path / "lab", QUICK)
    for year in (2030, 2020):
        moment = datetime(year, 1, 1, tzinfo=UTC)
        done = run(
            root / "experiments" / "mine.py", root=root, now=lambda m=moment: m, lease=tmp_path / "lease"
        )
        assert done.record.ended_at >= done.record.started_at
    assert len(complete(root)) == 2
    assert len(results(root)) == 4


@pytest.fixture
def unfinished_lab(tmp_path: Path) -> Path:
    """A lab whose run was killed in its visits."""
    lab = make_lab(tmp_path / "mein Läb", LONG)
    command = Running(tmp_path, "run", lab / "experiments" / "mine.py", "--root", lab)
    command.wait_for("visits ...")
    until(lambda: _visits(lab) >= 4, 30)
    command.process.kill()
    command.process.wait()
    return lab


@pytest.mark.parametrize("number", STOPS, ids=lambda n: signal.Signals(n).name)
def test_a_resumed_run_that_is_stopped_keeps_all_and_says_how_to_go_on(
    unfinished_lab: Path, number: int
) -> None:
    lab = unfinished_lab
    before = _visits(lab)
    command = Running(lab.parent, "run", "--resume", "--root", lab)
    command.wait_for("visits ...")
    until(lambda: _visits(lab) > before + 2, 30)
    stopped = command.stop(number)
    assert stopped.code == 130
    assert stopped.message().startswith("labkit: the run was interrupted; what was measured is kept in ")
    assert stopped.message().endswith("to go on with it: labkit run experiments/mine.py --resume\n")
    (record,) = read_records(lab).records
    assert (record.state, len(record.resumed), len(record.visits)) == ("partial", 1, _visits(lab))
    assert not [name for name in files(lab / "results") if Path(name).name.startswith(".")]


@pytest.mark.parametrize("number", STOPS, ids=lambda n: signal.Signals(n).name)
def test_listing_and_indexing_can_be_stopped(lab: Path, number: int) -> None:
    for arguments in (("experiments",), ("store", "rebuild")):
        command = Running(lab.parent, *arguments, "--root", lab)
        stopped = command.stop(number) if command.process.poll() is None else command.end()
        assert stopped.code in (130, -number, 0)  # -number: before labkit was there to answer
        assert "Traceback" not in stopped.err or stopped.code == -number
    assert ended(lab, "store", "rebuild").code == 0


@pytest.fixture
def small_disk(unfinished_lab: Path) -> Iterator[Path]:
    """That lab with its results on a file system of 4 MiB."""
    if os.geteuid() != 0 or shutil.which("mount") is None or sys.platform != "linux":
        pytest.skip("mounting a small file system needs root on Linux")
    lab = unfinished_lab
    kept = (lab / "results").rename(lab.parent / "kept")
    (lab / "results").mkdir()
    if _mount("-t", "tmpfs", "-o", "size=4m", "tmpfs", str(lab / "results")):
        pytest.skip("this root may not mount")
    try:
        shutil.copytree(kept, lab / "results", dirs_exist_ok=True)
        yield lab
    finally:
        subprocess.run(["umount", str(lab / "results")], check=True)


def _mount(*arguments: str) -> int:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode


def fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


def make_read_only(lab: Path) -> None:
    assert not _mount("-o", "remount,ro", str(lab / "results"))


def refusals(lab: Path, reason: str) -> None:
    """What writes says so in one message, what reads succeeds, and all that was there stays."""
    journal = journal_files(lab)[0].read_bytes()
    for arguments in (COMMANDS["run"], ("run", "--resume"), COMMANDS["store rebuild"]):
        refused = ended(lab, *arguments)
        assert refused.code == 1, arguments
        message = refused.err[refused.err.index("labkit: ") :]
        assert refused.err.count("labkit: ") == 1 and "Traceback" not in refused.err
        assert reason in message, message
    listed = ended(lab, "experiments")
    assert (listed.code, listed.err) == (0, "")
    assert journal_files(lab)[0].read_bytes() == journal


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda lab: fill(lab / "results"), "No space left on device"),
        (make_read_only, "Read-only file system"),
    ],
    ids=["full", "read-only"],
)
def test_a_disk_that_takes_nothing_is_told_in_one_message_and_loses_nothing(
    small_disk: Path, harm: Callable[[Path], None], reason: str
) -> None:
    harm(small_disk)
    refusals(small_disk, reason)
    _mount("-o", "remount,rw", str(small_disk / "results"))
    (small_disk / "results" / "filler").unlink(missing_ok=True)
    (small_disk / "experiments" / "mine.py").touch()
    assert ended(small_disk, "store", "rebuild").code == 0


def test_results_without_permission_are_told_in_one_message(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("permissions do not bind root; a read-only file system is tested instead")
    lab = make_lab(tmp_path / "lab", QUICK)
    (lab / "results").mkdir(mode=0o555)
    try:
        for name in ("run", "store rebuild"):
            refused = ended(lab, *COMMANDS[name])
            assert refused.code == 1
            assert "Permission denied" in refused.message()
        assert ended(lab, "experiments").code == 0
    finally:
        (lab / "results").chmod(0o755)
