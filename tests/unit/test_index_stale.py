"""When the index is stale, who brings it up to date, and what killed builders leave."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from labkit.store import index, query, snapshot
from labkit.store.index import LEFT_S, open_current, refresh
from labkit.store.snapshot import copy_file, log_of
from labkit.store.turn import turn
from labkit.store.write import record_text, write_record
from tests.unit.command_line import labkit
from tests.unit.decided_lab import open_lab
from tests.unit.sample_records import SLUG, sample_record


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """An indexed lab with two records."""
    for number in (1, 2):
        write_record(sample_record(run_id=f"run-{number}", pairs=2), tmp_path)
    refresh(tmp_path, query.database_path(tmp_path))
    return tmp_path


@pytest.fixture
def stale(lab: Path) -> Path:
    """The same with a third record that the index does not hold."""
    write_record(sample_record(run_id="run-3", pairs=2), lab)
    return lab


def _record(lab: Path, number: int = 1) -> Path:
    return lab / "results" / SLUG / f"run-{number}.json"


def _outcomes(lab: Path) -> list[str]:
    return query.sql(lab, "SELECT outcome FROM runs ORDER BY run_id")["outcome"].tolist()


def _is_current(lab: Path) -> bool:
    connection = open_current(lab, query.database_path(lab))
    if connection is None:
        return False
    connection.close()
    return True


def test_an_edit_of_the_same_length_is_noticed_by_its_time(lab: Path) -> None:
    path = _record(lab)
    before = path.stat()
    path.write_text(path.read_text().replace('"trade-off"', '"trade-on!"'))
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert not _is_current(lab)
    assert _outcomes(lab) == ["trade-on!", "trade-off"]


def test_an_edit_at_the_same_time_is_noticed_by_its_length(lab: Path) -> None:
    path = _record(lab)
    before = path.stat()
    path.write_text(path.read_text().replace('"trade-off"', '"refuted"'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not _is_current(lab)
    assert _outcomes(lab) == ["refuted", "trade-off"]


def test_a_torn_record_that_is_mended_or_removed_is_damaged_no_more(lab: Path) -> None:
    database = query.database_path(lab)
    whole = _record(lab).read_text()
    for end in (lambda: _record(lab).write_text(whole), lambda: _record(lab).unlink()):
        _record(lab).write_text("{")
        torn = refresh(lab, database)
        assert ([bad.path for bad in torn.damaged], torn.records) == ([f"results/{SLUG}/run-1.json"], 1)
        end()
        assert refresh(lab, database).damaged == ()


def test_a_record_that_is_torn_in_another_way_is_listed_once_with_the_new_reason(lab: Path) -> None:
    database = query.database_path(lab)
    reasons = []
    for content in ("{", "[]"):
        _record(lab).write_text(content)
        (bad,) = refresh(lab, database).damaged
        reasons.append(bad.reason)
    assert reasons[0] != reasons[1]


def test_a_partial_record_on_tune_text_is_not_among_the_tuned(lab: Path) -> None:
    tuned = sample_record(run_id="run-3", pairs=2, split="tune")
    write_record(tuned, lab)
    write_record(replace(tuned, run_id="run-4", state="partial"), lab)
    assert query.tuned(lab)["run_id"].tolist() == ["run-3"]


def test_a_linked_record_is_stale_once_its_target_changes(lab: Path) -> None:
    target = lab / "results" / "kept"
    target.mkdir()
    moved = target / "run-1.elsewhere"
    _record(lab).rename(moved)
    _record(lab).symlink_to(moved)
    refresh(lab, query.database_path(lab))
    assert _is_current(lab)
    moved.write_text(moved.read_text().replace('"trade-off"', '"refuted"'))
    assert not _is_current(lab)
    assert _outcomes(lab)[0] == "refuted"
    moved.unlink()
    assert [bad.path for bad in refresh(lab, query.database_path(lab)).damaged] == [
        f"results/{SLUG}/run-1.json"
    ]


def test_a_refresh_lists_the_files_again_where_another_one_came_before_it(
    stale: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other holds a record that came after this one's listing: it is not to be lost."""
    database = query.database_path(stale)

    @contextmanager
    def second(folder: Path, **how: Any) -> Iterator[bool]:
        monkeypatch.setattr(index, "turn", turn)
        write_record(sample_record(run_id="run-4", pairs=2), stale)
        assert refresh(stale, database).records == 4
        with turn(folder, **how) as held:
            yield held

    monkeypatch.setattr(index, "turn", second)
    assert refresh(stale, database).records == 4
    assert _is_current(stale)


def test_a_copy_of_a_file_that_changes_meanwhile_is_none(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, copied = query.database_path(lab), snapshot.shutil.copyfile

    def torn(source: Path, target: Path) -> None:
        copied(source, target)
        os.utime(source, ns=(0, 0))

    monkeypatch.setattr(snapshot.shutil, "copyfile", torn)
    with pytest.raises(OSError, match="changed while it was copied"):
        copy_file(database, tmp_path / "copy.duckdb")


def test_a_query_on_a_stale_index_reads_only_what_changed_and_leaves_it_current(
    stale: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "fill", lambda *_: pytest.fail("all records were read again"))
    assert len(query.results(stale)) == 6
    assert _is_current(stale)
    monkeypatch.setattr(index, "copy_file", lambda *_: pytest.fail("the index was copied again"))
    monkeypatch.setattr(snapshot, "copy_file", lambda *_: pytest.fail("the index was copied again"))
    assert len(query.results(stale)) == 6
    assert sorted(p.name for p in (stale / "results").iterdir()) == ["lab.duckdb", SLUG]


@contextmanager
def _building(lab: Path) -> Iterator[None]:
    with turn(lab / "results") as held:
        assert held
        yield


@contextmanager
def _with_log(lab: Path) -> Iterator[None]:
    log = log_of(query.database_path(lab))
    log.write_bytes(b"")
    yield
    assert log.exists(), "a query leaves it to its owner"


@contextmanager
def _full(_: Path) -> Iterator[None]:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "copy_file", refuse)
        yield


@pytest.mark.parametrize("hindered", [_building, _with_log, _full])
def test_a_query_that_must_not_or_cannot_publish_writes_nothing_and_answers(
    stale: Path, hindered: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = query.database_path(stale)
    before = database.read_bytes()
    monkeypatch.setattr(index, "fill", lambda *_: pytest.fail("all records were read again"))
    with hindered(stale):
        assert len(query.results(stale)) == 6
    assert database.read_bytes() == before


@pytest.mark.parametrize("command", [("sql", "SELECT run_id FROM runs"), ("experiments",), ("store", "list")])
def test_a_command_looks_at_the_files_once(
    lab: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_lab(lab)
    refresh(lab, query.database_path(lab))
    (lab / "results" / SLUG / "torn.json").write_text("{")
    refresh(lab, query.database_path(lab))
    looked: list[object] = []
    listed = index.file_table
    monkeypatch.setattr(index, "file_table", lambda root: looked.append(root) or listed(root))
    done = labkit(*command, "--root", lab)
    assert done.code == 0, done.err
    assert len(looked) == 1
    assert "torn.json" in done.err


def test_what_killed_builders_left_is_swept_and_a_builder_at_work_is_not(lab: Path) -> None:
    results, long_ago = lab / "results", time.time() - LEFT_S - 60
    for name in (".lab.duckdb.0a1b2c3d.new", ".lab.duckdb.0a1b2c3d.new.wal"):
        (results / name).write_bytes(b"half")
    for name in (".lab.duckdb.11111111.out-of-turn", ".lab.duckdb.11111111.out-of-turn.wal"):
        (results / name).write_bytes(b"half")
        os.utime(results / name, (long_ago, long_ago))
    (results / ".lab.duckdb.22222222.out-of-turn").write_bytes(b"at work")
    index.rebuild(lab, query.database_path(lab))
    assert sorted(p.name for p in results.iterdir()) == [
        ".lab.duckdb.22222222.out-of-turn",
        "lab.duckdb",
        SLUG,
    ]
    with duckdb.connect(str(query.database_path(lab)), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(2,)]


def test_a_record_written_anew_as_it_was_is_read_again_and_changes_nothing(lab: Path) -> None:
    before = query.results(lab)
    _record(lab).write_text(record_text(sample_record(run_id="run-1", pairs=2)), encoding="utf-8")
    assert query.results(lab).equals(before)
