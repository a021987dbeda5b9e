"""Index: the DuckDB database made of all records, which are the truth: it can always be made again."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.core.errors import RecordInvalid
from labkit.store.read import Damaged, one_line, read_records, record_files
from labkit.store.rows import Row, Tables, metric_rows, record_rows
from labkit.store.schema import INDEX_VERSION, TABLES, statements

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class Index:
    """What an index holds. rebuilt: False where it was already current and nothing was written."""

    database: Path
    records: int
    damaged: tuple[Damaged, ...]
    rebuilt: bool


@dataclass(frozen=True, slots=True)
class _Content:
    tables: Tables
    damaged: tuple[Damaged, ...] = field(default_factory=tuple)


def rebuild(root: Path | str, database: Path | str) -> Index:
    """Build the index into a new file and move it into place, so that an open reader keeps the old one.

    root: the lab root, whose records lie in `results/<machine>/`. Damaged records are listed, never raised.
    """
    root, database = Path(root), Path(database)
    content = _content(root)
    database.parent.mkdir(parents=True, exist_ok=True)
    fresh = database.with_name(f".{database.name}.{secrets.token_hex(4)}.new")
    try:
        _build(fresh, content)
        # A write-ahead log that someone left behind would be replayed into the new file.
        _log_of(database).unlink(missing_ok=True)
        fresh.replace(database)
    finally:
        fresh.unlink(missing_ok=True)
        _log_of(fresh).unlink(missing_ok=True)
    return Index(database, len(content.tables["runs"]), content.damaged, rebuilt=True)


def refresh(root: Path | str, database: Path | str) -> Index:
    """The current index: rebuilt only where a record file came, went or changed, or labkit's tables did."""
    connection = open_current(root, database)
    if connection is None:
        return rebuild(root, database)
    with connection:
        count = connection.execute("SELECT count(*) FROM runs").fetchall()[0][0]
        rows = connection.execute("SELECT path, reason FROM damaged ORDER BY path").fetchall()
    return Index(Path(database), count, tuple(Damaged(*row) for row in rows), rebuilt=False)


def open_current(root: Path | str, database: Path | str) -> DuckDBPyConnection | None:
    """A read-only connection to the index, or None where there is none or it is not current.

    Attached to a private in-memory instance: DuckDB shares instances by path within a process, and would
    answer from a replaced file as long as anyone there keeps the old one open.
    """
    import duckdb

    if not Path(database).is_file():
        return None
    connection = duckdb.connect(":memory:")
    try:
        quoted = str(database).replace("'", "''")
        connection.execute(f"ATTACH '{quoted}' AS lab (READ_ONLY)")
        connection.execute("USE lab")
        if _is_current(connection, Path(root)):
            return connection
    except duckdb.Error:
        pass
    connection.close()
    return None


def open_in_memory(root: Path | str) -> DuckDBPyConnection:
    """The same index built in memory; writes nothing."""
    import duckdb

    connection = duckdb.connect(":memory:")
    _fill(connection, _content(Path(root)))
    return connection


def _is_current(connection: DuckDBPyConnection, root: Path) -> bool:
    version = connection.execute("SELECT version FROM index_info").fetchall()
    files = connection.execute("SELECT path, bytes, mtime_ns FROM files ORDER BY path").fetchall()
    return version == [(INDEX_VERSION,)] and files == sorted(tuple(f.values()) for f in _file_rows(root))


def _content(root: Path) -> _Content:
    # Files are listed before they are read: a record that comes in between makes the index stale, not wrong.
    tables: Tables = {name: [] for name in TABLES}
    tables["files"] = _file_rows(root)
    loaded = read_records(root)
    damaged = list(loaded.damaged)
    for stored in loaded.stored:
        try:
            for name, rows in record_rows(stored.record, stored.path).items():
                tables[name].extend(rows)
        except RecordInvalid as error:
            damaged.append(Damaged(stored.path, one_line(error)))
    damaged.sort(key=lambda d: d.path)
    tables["damaged"] = [asdict(d) for d in damaged]
    tables["metrics"] = metric_rows()
    tables["index_info"] = [{"version": INDEX_VERSION}]
    return _Content(tables, tuple(damaged))


def _file_rows(root: Path) -> list[Row]:
    stats = ((p.relative_to(root).as_posix(), p.lstat()) for p in record_files(root))
    return [{"path": name, "bytes": s.st_size, "mtime_ns": s.st_mtime_ns} for name, s in stats]


def _build(path: Path, content: _Content) -> None:
    import duckdb

    with duckdb.connect(str(path)) as connection:
        _fill(connection, content)
        connection.execute("CHECKPOINT")


def _fill(connection: DuckDBPyConnection, content: _Content) -> None:
    import pandas

    for statement in statements():
        connection.execute(statement)
    for name, rows in content.tables.items():
        if rows:
            frame = pandas.DataFrame(rows, columns=list(TABLES[name]), dtype=object)
            connection.register("incoming", frame)
            connection.execute(f"INSERT INTO {name} SELECT * FROM incoming")
            connection.unregister("incoming")


def _log_of(database: Path) -> Path:
    return database.with_name(f"{database.name}.wal")
