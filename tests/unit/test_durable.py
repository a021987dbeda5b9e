"""Durable files: whole or absent, never over another, as far as the drive, and without locks as well."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from labkit.core.errors import DecisionRefused, JournalInvalid
from labkit.core.events import Event, Note
from labkit.lab.measuring.run import run, utc_now
from labkit.lab.measuring.unfinished import seal_orphans
from labkit.store import durable
from labkit.store.decisions import deciding
from labkit.store.index import rebuild
from labkit.store.journal import create_journal, journal_files, journals_folder, open_journal
from labkit.store.lock import poll_for_lock, take_lock
from labkit.store.read import read_records
from tests.unit.command_line import EXPERIMENT, files, make_lab
from tests.unit.power_cut import LOSSES, Loss, Recorder, every_moment

TEXT = "größer\n" * 5
NO_LOCKS = [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EINVAL]


def raising(number: int) -> Callable[..., None]:
    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fails


@pytest.fixture(params=NO_LOCKS, ids=[errno.errorcode[number] for number in NO_LOCKS])
def no_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system on which every lock fails."""
    monkeypatch.setattr(fcntl, "flock", raising(request.param))


def open_handles() -> int:
    return sum(is_open(handle) for handle in range(256))


def is_open(handle: int) -> bool:
    try:
        os.fstat(handle)
    except OSError:
        return False
    return True


def test_a_disk_that_takes_a_few_bytes_at_a_time_gets_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:7]))
    durable.write_new(tmp_path / "new.json", TEXT)
    durable.replace_text(tmp_path / "old.toml", TEXT)
    monkeypatch.undo()
    assert {(tmp_path / name).read_text("utf-8") for name in ("new.json", "old.toml")} == {TEXT}


def test_a_move_leaves_the_file_at_its_new_name_alone(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(TEXT)
    durable.move_new(tmp_path / "old.json", tmp_path / "far" / "away" / "new.json")
    assert files(tmp_path) == {"far/away/new.json"}
    assert (tmp_path / "far" / "away" / "new.json").read_text() == TEXT


@pytest.mark.parametrize("linked", [None, errno.EPERM, errno.EXDEV])
def test_a_move_goes_over_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: int | None
) -> None:
    for name in ("old", "taken"):
        (tmp_path / name).write_text(name)
    link = os.link
    if linked is not None:  # for lack of hard links, or as between two file systems
        own = (lambda *_, **__: raising(linked)()) if linked == errno.EPERM else elsewhere(link, linked)
        monkeypatch.setattr(os, "link", own)
    with pytest.raises(FileExistsError):
        durable.move_new(tmp_path / "old", tmp_path / "taken")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"old": "old", "taken": "taken"}
    durable.move_new(tmp_path / "old", tmp_path / "free")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"free": "old", "taken": "taken"}


def elsewhere(link: Callable[..., None], number: int) -> Callable[..., None]:
    """Links what lies hidden beside its target; what comes from another file system it does not."""

    def linked(source: Path, target: Path, **options: bool) -> None:
        if not Path(source).name.startswith("."):
            raising(number)()
        link(source, target, **options)

    return linked


def test_a_move_that_cannot_take_the_old_name_away_makes_no_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = os.unlink

    def refused(path: Path, **options: int) -> None:
        raising(errno.EACCES)() if Path(path).name == "old" else unlink(path, **options)

    (tmp_path / "old").write_text("old")
    monkeypatch.setattr(os, "unlink", refused)
    with pytest.raises(PermissionError):
        durable.move_new(tmp_path / "old", tmp_path / "new")
    assert files(tmp_path) == {"old"}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_moved_file_is_never_lost_and_a_removed_one_never_back(tmp_path: Path, loss: Loss) -> None:
    recorder = Recorder(tmp_path)
    with recorder.recording():
        durable.write_new(tmp_path / "a" / "old", TEXT)
        recorder.mark("written")
        durable.move_new(tmp_path / "a" / "old", tmp_path / "b" / "new")
        recorder.mark("moved")
        durable.remove(tmp_path / "b" / "new")
        recorder.mark("removed")
    allowed = {1: ({"a/old"}, {"a/old", "b/new"}, {"b/new"}), 2: ({"b/new"}, set()), 3: (set(),)}
    for disk in every_moment(recorder.operations):
        found = {name: data for name, data in disk.after(loss).items() if data is not None}
        if disk.marks:
            assert set(found) in allowed[len(disk.marks)]
            assert set(found.values()) <= {TEXT.encode()}


def test_bytes_go_as_far_as_the_drive_where_the_system_can_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, plain = list[int](), list[int]()
    monkeypatch.setattr(durable, "_FULL_SYNC", 51)
    monkeypatch.setattr(fcntl, "fcntl", lambda handle, command: full.append(command))
    monkeypatch.setattr(os, "fsync", plain.append)
    durable.write_new(tmp_path / "new.json", TEXT)
    assert (full, plain) == ([51, 51], [])  # the file and its folder
    monkeypatch.setattr(fcntl, "fcntl", raising(errno.ENOTSUP))
    durable.write_new(tmp_path / "other.json", TEXT)
    assert len(plain) == 2
    monkeypatch.setattr(fcntl, "fcntl", raising(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        durable.write_new(tmp_path / "third.json", TEXT)
    assert len(plain) == 2 and files(tmp_path) == {"new.json", "other.json"}


@pytest.mark.parametrize("new", [False, True])
def test_a_file_that_was_removed_before_it_was_locked_is_not_appended_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: bool
) -> None:
    path, removed, before = tmp_path / "run.jsonl", list[Path](), open_handles()

    def removed_first(handle: int, how: int, flock: Callable[[int, int], None] = fcntl.flock) -> None:
        if not removed:
            path.unlink()
            removed.append(path)
        flock(handle, how)

    if not new:
        path.touch()
    monkeypatch.setattr(fcntl, "flock", removed_first)
    if new:
        handle = durable.open_append(path, new=True)
        assert handle is not None and os.fstat(handle).st_ino == path.stat().st_ino
        os.close(handle)
    else:
        with pytest.raises(FileNotFoundError):
            durable.open_append(path, new=False)
    assert removed and open_handles() == before


def test_without_locks_files_are_written_and_nothing_is_taken_for_left(
    tmp_path: Path, no_locks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_handles()
    (tmp_path / ".alive.json.0a1b2c3d.tmp").touch()
    durable.write_new(tmp_path / "new.json", TEXT)
    durable.replace_text(tmp_path / "new.json", "newer")
    monkeypatch.setattr(os, "link", lambda *_, **__: raising(errno.EPERM)())
    durable.write_new(tmp_path / "other.json", TEXT)
    assert durable.sweep(tmp_path) == ()
    assert files(tmp_path) == {".alive.json.0a1b2c3d.tmp", "new.json", "other.json"}
    assert open_handles() == before


def test_without_locks_no_journal_is_begun_or_gone_on_with(tmp_path: Path, no_locks: None) -> None:
    before, path = open_handles(), journals_folder(tmp_path) / "run.jsonl"
    with pytest.raises(durable.NoLocks):
        create_journal(path)
    assert not path.exists()
    path.touch()
    with pytest.raises(JournalInvalid, match=r"(?s)locks was needed.*run\.jsonl.*run it anew"):
        open_journal(path)
    assert path.exists() and open_handles() == before


def test_what_is_no_file_is_not_appended_to(tmp_path: Path) -> None:
    before = open_handles()
    os.mkfifo(tmp_path / "run.jsonl")
    with pytest.raises(OSError, match="not a regular file"):
        durable.open_append(tmp_path / "run.jsonl", new=False)
    assert open_handles() == before


def test_a_run_on_a_file_system_without_locks_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", raising(errno.ENOLCK))
    root, told = make_lab(tmp_path / "lab", EXPERIMENT), list[Event]()
    before = open_handles()
    done = run(root / "experiments" / "mine.py", root=root, sink=told.append, lease=tmp_path / "lease")
    assert [record.run_id for record in read_records(root).records] == [done.record.run_id]
    assert journal_files(root) == () and open_handles() == before
    assert not [name for name in files(root) if Path(name).name.startswith(".")]
    said = [event.text for event in told if isinstance(event, Note)]
    assert sum("could not be resumed after a stop" in text for text in said) == 1
    assert sum("measure nothing else on this machine" in text for text in said) == 1
    assert seal_orphans(root, told.append, utc_now) == ()


def test_without_locks_an_index_is_built_and_a_decision_waits_for_nobody(
    tmp_path: Path, no_locks: None
) -> None:
    (tmp_path / "experiments").mkdir()
    with deciding(tmp_path):
        assert rebuild(tmp_path, tmp_path / "results" / "lab.duckdb").records == 0
    assert files(tmp_path) == {"results/lab.duckdb"}


def test_who_waits_for_a_lock_waits_so_long_and_no_longer(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    first, second = (os.open(tmp_path / "experiments", os.O_RDONLY) for _ in range(2))
    assert take_lock(first) == "held"
    ticks = iter([0.0, 1.0, 29.0, 30.0, 31.0])
    assert poll_for_lock(second, 30.0, lambda: next(ticks)) == "busy"
    assert next(ticks) == 31.0
    with pytest.raises(DecisionRefused, match="another decision has held it"), deciding(tmp_path, 0.0):
        pass
    os.close(first)
    assert poll_for_lock(second, 0.0) == "held"
    os.close(second)
