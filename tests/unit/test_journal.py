"""The journal on disk: what was appended is there, what was torn is not, and damage is named by its line."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.core.errors import JournalInvalid
from labkit.core.journal import Entry
from labkit.store import durable
from labkit.store.journal import (
    FileJournal,
    create_journal,
    journal_files,
    journals_folder,
    line,
    open_journal,
    parse,
    read_entries,
)

ENTRIES = (
    Entry("header", {"name": "Läb\udcff", "pairs": 3}),
    Entry("visit", {"s": [0.1, 1e-300]}),
    Entry("x", {}),
)
APPENDER = """
import sys, time
from pathlib import Path
from labkit.store.journal import create_journal
journal = create_journal(Path(sys.argv[1]))
journal.append("header", {"n": 0})
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with the three entries, closed."""
    place = journals_folder(tmp_path) / "run.jsonl"
    journal = create_journal(place)
    for entry in ENTRIES:
        journal.append(entry.kind, entry.data)
    journal.close()
    return place


def reopened(path: Path) -> FileJournal:
    journal = open_journal(path)
    assert journal is not None
    return journal


def test_entries_survive_the_disk_in_order(path: Path, tmp_path: Path) -> None:
    assert read_entries(path) == ENTRIES
    assert journal_files(tmp_path) == (path,)
    journal = reopened(path)
    journal.append("more", {"a": None})
    assert journal.entries() == (*ENTRIES, Entry("more", {"a": None})) == read_entries(path)
    journal.close()
    journal.close()


def test_a_line_is_its_checksum_and_its_json() -> None:
    text = line("visit", {"b": 1, "a": "ä\udcff"})  # a name that is not UTF-8, as Python holds it
    sum_, body = text.rstrip(b"\n").split(b" ", 1)
    assert body == rb'{"data":{"a":"\u00e4\udcff","b":1},"kind":"visit"}'
    assert parse(text, "j")[0] == [Entry("visit", {"b": 1, "a": "ä\udcff"})]
    assert int(sum_, 16) == zlib.crc32(body)


def test_whatever_is_torn_of_the_last_line_the_rest_is_whole(path: Path) -> None:
    data = path.read_bytes()
    last = data.rstrip(b"\n").rfind(b"\n") + 1
    for end in range(last, len(data)):
        assert parse(data[:end], "j") == (list(ENTRIES[:2]), last)
        # A file system may have made room for the line and lost its bytes.
        lost = data[:end] + bytes(len(data) - end)
        assert parse(lost, "j") == (list(ENTRIES[:2]), last)


def test_a_torn_line_is_cut_before_anything_is_appended(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    journal = reopened(path)
    journal.append("after", {})
    journal.close()
    assert [e.kind for e in read_entries(path)] == ["header", "visit", "after"]


@pytest.mark.parametrize("number", [1, 2])
def test_damage_before_the_last_line_is_named_and_left_alone(path: Path, number: int) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number - 1] = lines[number - 1].replace(b'"', b"'", 1)
    path.write_bytes(b"".join(lines))
    before = path.read_bytes()
    with pytest.raises(
        JournalInvalid, match=f"(?s)journals/run.jsonl.*line {number} is damaged.*run it anew"
    ):
        read_entries(path)
    with pytest.raises(JournalInvalid, match=f"line {number} is damaged"):
        open_journal(path)
    assert path.read_bytes() == before
    for _ in range(2):  # what failed to open holds no lock
        with pytest.raises(JournalInvalid):
            open_journal(path)


@given(
    st.lists(st.dictionaries(st.text(), st.integers() | st.text() | st.floats(allow_nan=False)), max_size=5)
)
def test_any_cut_gives_a_prefix_of_the_entries(datas: list[dict[str, object]]) -> None:
    entries = [Entry("visit", data) for data in datas if float("inf") not in map(abs_, data.values())]
    text = b"".join(line(e.kind, e.data) for e in entries)
    for end in range(0, len(text) + 1, 7):
        found, whole = parse(text[:end], "j")
        assert found == entries[: len(found)]
        assert whole == len(b"".join(line(e.kind, e.data) for e in found)) <= end


def abs_(value: object) -> object:
    return abs(value) if isinstance(value, float) else value


def test_a_journal_is_held_by_one_process_and_freed_by_its_death(tmp_path: Path) -> None:
    path = journals_folder(tmp_path) / "run.jsonl"
    command = [sys.executable, "-c", APPENDER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert open_journal(path) is None
        assert [e.kind for e in read_entries(path)] == ["header"]
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert [e.kind for e in reopened(path).entries()] == ["header"]


def test_no_name_is_taken_twice_and_none_is_made_by_opening(path: Path) -> None:
    with pytest.raises(FileExistsError):
        create_journal(path)
    assert open_journal(path.with_name("other.jsonl")) is None
    assert [p.name for p in path.parent.iterdir()] == ["run.jsonl"]


def test_a_removed_journal_is_gone_for_who_waited_for_it(path: Path) -> None:
    journal = reopened(path)
    assert open_journal(path) is None
    journal.remove()
    assert open_journal(path) is None
    assert not path.exists()


def test_an_append_that_the_disk_takes_half_of_is_undone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, before = reopened(path), path.read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[: len(data) // 2]))
    with pytest.raises(OSError, match="No space left") as full:
        journal.append("lost", {"a": 1})
    assert full.value.errno == errno.ENOSPC
    monkeypatch.undo()
    assert path.read_bytes() == before
    journal.append("kept", {})
    assert [e.kind for e in read_entries(path)] == ["header", "visit", "x", "kept"]


def test_an_append_that_could_not_be_made_durable_is_undone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    journal, before = reopened(path), path.read_bytes()
    monkeypatch.setattr(durable, "_FULL_SYNC", None)
    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="Input/output"):
        journal.append("lost", {})
    assert path.read_bytes() == before
    assert journal.entries() == ENTRIES


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new folder" / "promoted.toml"
    durable.replace_text(path, "old\n")
    durable.replace_text(path, "größer\n")
    assert path.read_text(encoding="utf-8") == "größer\n"

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        durable.replace_text(path, "newest\n")
    monkeypatch.undo()
    assert path.read_text(encoding="utf-8") == "größer\n"
    assert [p.name for p in path.parent.iterdir()] == ["promoted.toml"]


def test_a_sweep_removes_what_the_dead_left_and_nothing_of_the_living(tmp_path: Path) -> None:
    (tmp_path / ".dead.json.0a1b2c3d.tmp").touch()
    (tmp_path / "kept.tmp").touch()
    (tmp_path / ".kept").touch()
    temporary, handle = durable._open_temporary(tmp_path / "alive.json")
    swept = durable.sweep(tmp_path)
    assert [p.name for p in swept] == [".dead.json.0a1b2c3d.tmp"]
    assert {p.name for p in tmp_path.iterdir()} == {"kept.tmp", ".kept", temporary.name}
    os.close(handle)
    assert durable.sweep(tmp_path) == (temporary,)
    assert durable.sweep(tmp_path / "missing") == ()


def test_writers_and_a_sweeper_at_once_lose_nothing(tmp_path: Path) -> None:
    stop = threading.Event()

    def sweep() -> None:
        while not stop.is_set():
            durable.sweep(tmp_path)

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        for number in range(100):
            durable.write_new(tmp_path / f"{number}.json", str(number))
    finally:
        stop.set()
        sweeper.join()
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {f"{n}.json": str(n) for n in range(100)}


def test_journals_are_ignored_by_git() -> None:
    lines = (Path(__file__).parents[2] / ".gitignore").read_text().splitlines()
    assert "results/journals/" in lines
    assert re.search("journals$", str(journals_folder(Path())))
