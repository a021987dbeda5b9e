"""Snapshot: reads a database file without getting into the way of whoever else has it open.

Every connection is a private in-memory instance with the file attached as `lab`: DuckDB shares instances by
path within a process, and would answer from a replaced file as long as anyone there keeps the old one open.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def log_of(database: Path) -> Path:
    """The write-ahead log that DuckDB keeps beside a database."""
    return database.with_name(f"{database.name}.wal")


def open_snapshot(database: Path) -> DuckDBPyConnection | None:
    """A read-only connection to the file, or to a private copy of it; None where it is no database.

    The copy serves where another connection has locked the file, or left a write-ahead log beside it, which
    belongs to that connection and need not fit this file.
    """
    import duckdb

    if not database.is_file():
        return None
    if not log_of(database).exists():
        with contextlib.suppress(duckdb.Error):
            return attach(database)
    return open_copy(database, lambda _: None)


def open_copy(database: Path, change: Callable[[DuckDBPyConnection], object]) -> DuckDBPyConnection | None:
    """A read-only connection to a changed copy of the file, which nobody else sees and which leaves nothing.

    None where it cannot be copied, or is no database. What `change` raises is passed on but for DuckDB's own.
    """
    import duckdb

    with contextlib.suppress(OSError, duckdb.Error), _scratch() as folder:
        copy = folder / "lab.duckdb"
        copy_file(database, copy)
        return _changed(copy, change)
    return None


def open_new(make: Callable[[DuckDBPyConnection], object]) -> DuckDBPyConnection:
    """A read-only connection to a new database that nobody else sees and that leaves nothing.

    Where there is no room for its file it is made in memory, where it can be written to.
    """
    import duckdb

    with contextlib.suppress(OSError, duckdb.Error), _scratch() as folder:
        return _changed(folder / "lab.duckdb", make)
    connection = duckdb.connect(":memory:")
    make(connection)
    return connection


def _changed(database: Path, change: Callable[[DuckDBPyConnection], object]) -> DuckDBPyConnection:
    """An open file needs no name: its folder may go while the connection lives."""
    import duckdb

    with duckdb.connect(str(database)) as connection:
        change(connection)
    return attach(database)


def copy_file(database: Path, copy: Path) -> None:
    """Copy a database. Raise OSError where it changed meanwhile, since the copy may then be torn."""
    before = database.stat()
    shutil.copyfile(database, copy)
    after = database.stat()
    if (before.st_ino, before.st_size, before.st_mtime_ns) != (
        after.st_ino,
        after.st_size,
        after.st_mtime_ns,
    ):
        raise OSError(f"{database} changed while it was copied")


def attach(database: Path) -> DuckDBPyConnection:
    """A read-only connection to the file. Raise duckdb.Error where it is locked or no database."""
    import duckdb

    connection = duckdb.connect(":memory:")
    try:
        quoted = str(database).replace("'", "''")
        connection.execute(f"ATTACH '{quoted}' AS lab (READ_ONLY)")
        connection.execute("USE lab")
    except duckdb.Error:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="labkit-index-") as folder:
        yield Path(folder)
