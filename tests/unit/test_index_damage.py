"""A damaged index is no loss: what is asked is answered from the records, and the file is made anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas
import pytest

from labkit.lab.reading.question import QueryInvalid, answer
from labkit.lab.reading.runs import runs
from labkit.store import index, query
from labkit.store.database import is_whole
from labkit.store.index import open_current, rebuild, refresh
from labkit.store.schema import TABLES
from labkit.store.write import write_record
from tests.unit.command_line import labkit
from tests.unit.sample_records import SLUG, sample_record

# DuckDB's file: three headers of 4 KiB, then blocks of 256 KiB that begin with a checksum.
HEADERS, BLOCK = 3 * 4096, 256 * 1024


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A lab with a few records, and the bytes of its index."""
    root = tmp_path_factory.mktemp("lab")
    for number in range(3):
        write_record(sample_record(run_id=f"run-{number}", pairs=2), root)
    return root, rebuild(root, query.database_path(root)).database.read_bytes()


def _damaged(whole: bytes) -> Iterator[bytes]:
    """The index with each of its blocks emptied in turn."""
    for start in range(HEADERS, len(whole), BLOCK):
        yield whole[:start] + bytes(min(2**16, len(whole) - start)) + whole[start + 2**16 :]


def _damage_tables(database: Path, whole: bytes) -> None:
    """Put a damaged index in place that opens and counts as current, with values that cannot be read."""
    for content in _damaged(whole):
        database.write_bytes(content)
        connection = open_current(database.parents[1], database)
        if connection is not None:
            with connection:
                if not is_whole(connection):
                    return
    pytest.fail("no block of this index holds values alone")


@pytest.fixture
def lab(indexed: tuple[Path, bytes]) -> Path:
    root, whole = indexed
    _damage_tables(query.database_path(root), whole)
    return root


def test_whichever_block_is_damaged_every_frame_is_that_of_the_records(
    indexed: tuple[Path, bytes],
) -> None:
    root, whole = indexed
    database = query.database_path(root)
    frames = (query.results, query.axes, query.visits, query.history, query.damaged)
    database.unlink(missing_ok=True)
    expected = [frame(root) for frame in frames]
    for content in _damaged(whole):
        database.write_bytes(content)
        for frame, right in zip(frames, expected, strict=True):
            pandas.testing.assert_frame_equal(frame(root), right)


@pytest.mark.parametrize(
    "command",
    [("store", "list"), ("frontier",), ("sql", "SELECT * FROM frontier"), ("sql", "FROM visits"), ("sql",)],
)
def test_a_command_answers_on_a_damaged_index(lab: Path, command: tuple[str, ...], tmp_path: Path) -> None:
    more = ("--out", tmp_path) if command == ("frontier",) else ()
    done = labkit(*command, *more, "--root", lab, "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)


def test_an_export_from_a_damaged_index_is_whole(lab: Path, tmp_path: Path) -> None:
    done = labkit("export", "--parquet", tmp_path / "out", "--root", lab)
    assert done.code == 0, done.err
    assert len(pandas.read_parquet(tmp_path / "out" / "runs.parquet")) == 3


def test_a_query_that_meets_damage_mends_the_file(lab: Path) -> None:
    database = query.database_path(lab)
    assert len(runs(lab)) == 3
    for name in TABLES:
        query.sql(lab, f"FROM {name}")
    current = open_current(lab, database)
    assert current is not None
    with current:
        assert is_whole(current)


def test_a_refresh_and_a_rebuild_mend_a_damaged_index(lab: Path, indexed: tuple[Path, bytes]) -> None:
    database = query.database_path(lab)
    assert refresh(lab, database).rebuilt
    assert not refresh(lab, database).rebuilt
    _damage_tables(database, indexed[1])
    assert labkit("store", "rebuild", "--root", lab).code == 0
    assert not refresh(lab, database).rebuilt


def test_a_damaged_index_that_cannot_be_replaced_is_left_and_costs_no_answer(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = query.database_path(lab)
    before = database.read_bytes()

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(index, "_rebuilt", refuse)
    assert len(query.visits(lab)) == 3 * 6
    assert database.read_bytes() == before


def test_a_wrong_query_makes_nothing_anew(
    indexed: tuple[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, whole = indexed
    query.database_path(root).write_bytes(whole)
    monkeypatch.setattr(index, "fill", lambda *_: pytest.fail("all records were read again"))
    for wrong in (
        "SELECT nothing FROM runs",
        "SELECT * FROM nothing",
        "SELEC",
        "SELECT run_id::INT FROM runs",
    ):
        with pytest.raises(QueryInvalid):
            answer(wrong, root)
    with pytest.raises(duckdb.ConversionException):
        query.sql(root, "SELECT run_id::INT FROM runs")
    assert SLUG in set(query.results(root)["machine"])
