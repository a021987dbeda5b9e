"""Runs, notebooks and other programs at one index at once: no lock reaches a person and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from labkit.store import index, query
from labkit.store.index import open_current, refresh
from labkit.store.write import write_record
from tests.unit.sample_records import SLUG, sample_record

HOLD = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "read")
if sys.argv[2] != "read":
    connection.execute("SET wal_autocheckpoint = '1GB'")
    connection.execute("CREATE TABLE IF NOT EXISTS mine AS SELECT 42 AS x")
print(connection.execute("SELECT count(*) FROM runs").fetchall()[0][0], flush=True)
sys.stdin.readline()
if sys.argv[2] == "crash":
    import os
    os._exit(1)
print(connection.execute("SELECT count(*) FROM runs").fetchall()[0][0], flush=True)
"""

RUN = """
import sys
from pathlib import Path
from labkit.store.index import refresh
from labkit.store.query import database_path
from labkit.store.write import write_record
from tests.unit.sample_records import sample_record
root = Path(sys.argv[1])
for number in range(4):
    write_record(sample_record(run_id=f"run-{sys.argv[2]}-{number}", pairs=2), root)
    refresh(root, database_path(root))
"""


@contextmanager
def _held(database: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the database open; it ends with the block."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLD, str(database), how]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline().strip() == "1"
        try:
            yield process
        finally:
            process.stdin.write("\n")
            process.stdin.flush()
            process.wait(timeout=30)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    write_record(sample_record(run_id="run-1", pairs=2), tmp_path)
    refresh(tmp_path, query.database_path(tmp_path))
    return tmp_path


@pytest.mark.parametrize("how", ["read", "write"])
def test_another_process_with_the_index_open_blocks_nothing(
    lab: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = query.database_path(lab)
    with _held(database, how) as other:
        monkeypatch.setattr(index, "fill", lambda *_: pytest.fail("a current index was made again"))
        assert open_current(lab, database) is not None
        assert len(query.results(lab)) == 2
        assert not refresh(lab, database).rebuilt
        write_record(sample_record(run_id="run-2", pairs=2), lab)
        after = refresh(lab, database)
        assert (after.rebuilt, after.records) == (True, 2)
        assert after.dropped_log == (how == "write")
        assert len(query.results(lab)) == 4
        assert other.poll() is None
    assert other.returncode == 0, "the reader kept the file that it had open"
    assert open_current(lab, database) is not None
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(2,)]


def test_a_connection_of_this_process_blocks_nothing(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = query.database_path(lab)
    with duckdb.connect(str(database)) as mine:
        monkeypatch.setattr(index, "fill", lambda *_: pytest.fail("a current index was made again"))
        mine.execute("SELECT 1")
        assert open_current(lab, database) is not None
        write_record(sample_record(run_id="run-2", pairs=2), lab)
        assert refresh(lab, database).records == 2
        assert len(query.results(lab)) == 4


def test_the_log_of_a_crashed_program_is_never_replayed_into_a_new_index(lab: Path) -> None:
    database = query.database_path(lab)
    log = database.with_name("lab.duckdb.wal")
    with _held(database, "crash"):
        pass
    left = log.read_bytes()
    assert left, "the crash left a log behind"
    assert query.sql(lab, "FROM duckdb_tables() WHERE table_name = 'mine'").empty
    assert log.read_bytes() == left, "a query leaves it to its owner"
    write_record(sample_record(run_id="run-2", pairs=2), lab)
    assert refresh(lab, database).dropped_log
    assert not log.exists()
    # A log of the old file that comes after the move, from a program that still had the old one open.
    log.write_bytes(left)
    assert len(query.results(lab)) == 4
    write_record(sample_record(run_id="run-3", pairs=2), lab)
    assert refresh(lab, database).records == 3
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(3,)]


def test_two_runs_at_once_leave_a_current_index_with_every_record(lab: Path) -> None:
    database = query.database_path(lab)
    with _held(database, "read"):
        runs = [subprocess.Popen([sys.executable, "-c", RUN, str(lab), name]) for name in ("a", "b")]
        assert [run.wait(timeout=60) for run in runs] == [0, 0]
    current = open_current(lab, database)
    assert current is not None, "the later refresh did not undo the earlier one"
    with current:
        assert current.execute("SELECT count(*) FROM runs").fetchall() == [(9,)]
    assert sorted(p.name for p in (lab / "results").iterdir()) == ["lab.duckdb", SLUG]


def test_a_folder_that_cannot_be_written_still_answers(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nowhere to put a private copy: the records themselves answer."""
    write_record(sample_record(run_id="run-2", pairs=2), lab)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryDirectory", refuse)
    assert len(query.results(lab)) == 4
