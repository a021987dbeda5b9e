"""Index: the DuckDB database made of all records, which are the truth: it can always be made again.

Knows how a new index gets into its place and how the current one is opened; not what is in it (`database`).
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.core.errors import LabkitError
from labkit.store.database import differences, fill, is_ours, is_whole, update
from labkit.store.files import file_table
from labkit.store.read import Damaged
from labkit.store.schema import INDEX_VERSION
from labkit.store.snapshot import copy_file, log_of, open_copy, open_new, open_snapshot
from labkit.store.turn import turn

if TYPE_CHECKING:
    import pyarrow
    from duckdb import DuckDBPyConnection

__all__ = ["INDEX_VERSION", "Index", "open_anew", "open_current", "open_index", "rebuild", "refresh"]

# What a builder has not touched for so long was left by a killed one.
LEFT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Index:
    """What an index holds. rebuilt: False where it was already current and nothing was written.

    dropped_log: whether another connection's unsaved changes to the old file were left out of the new one.
    """

    database: Path
    records: int
    damaged: tuple[Damaged, ...]
    rebuilt: bool
    dropped_log: bool = False


class _NotOurs(LabkitError):
    """A database that this version of labkit has not made."""


def rebuild(root: Path | str, database: Path | str) -> Index:
    """Build the index into a new file and move it into place, so that an open reader keeps the old one.

    root: the lab root, whose records lie in `results/<machine>/`. Damaged records are listed, never raised.
    """
    root, database = Path(root), Path(database)
    database.parent.mkdir(parents=True, exist_ok=True)
    with turn(database.parent) as held:
        return _rebuilt(root, database, held)


def refresh(root: Path | str, database: Path | str) -> Index:
    """The current index, looked through for damage.

    Of files that came, went or changed a copy of it is made, which then replaces it; a damaged one is made
    anew.
    """
    root, database = Path(root), Path(database)
    files, seen = file_table(root), _identity(database)
    connection = _open_current(database, files)
    if connection is not None:
        with connection:
            if is_whole(connection):
                return _described(connection, database, rebuilt=False)
    database.parent.mkdir(parents=True, exist_ok=True)
    with turn(database.parent) as held:
        # A current index that is refreshed all the same is damaged: no copy of it helps.
        listed = _listed(root, database, files, seen)
        updated = _updated(root, database, held, listed) if connection is None else None
        return updated or _rebuilt(root, database, held)


def open_current(root: Path | str, database: Path | str) -> DuckDBPyConnection | None:
    """A read-only connection to the index, or None where there is none or it is not current."""
    return _open_current(Path(database), file_table(root))


def open_index(root: Path | str, database: Path | str) -> DuckDBPyConnection:
    """A connection to what a current index holds, which cannot be written to.

    An index that is not current is brought up to date, in a private copy where its place cannot be written or
    somebody else is at it; where there is none a private one is made of all records.
    """
    root, database = Path(root), Path(database)
    files, seen = file_table(root), _identity(database)
    connection = _open_current(database, files)
    if connection is None and seen:
        connection = _open_placed(
            database, lambda: _updated(root, database, True, _listed(root, database, files, seen))
        )
    if connection is None and seen:
        with contextlib.suppress(_NotOurs):
            connection = open_copy(database, lambda copy: _bring_up_to_date(copy, root, files))
    return connection or _open_private(root)


def open_anew(root: Path | str, database: Path | str) -> DuckDBPyConnection:
    """The same of the records alone: for an index that turned out to be damaged, replaced where it can be."""
    root, database = Path(root), Path(database)
    return _open_placed(database, lambda: _rebuilt(root, database, True)) or _open_private(root)


def _open_private(root: Path) -> DuckDBPyConnection:
    return open_new(lambda new: _fill_at_once(new, root))


def _open_placed(database: Path, place: Callable[[], Index | None]) -> DuckDBPyConnection | None:
    """A connection to the index that `place` puts into the lab, or None where it must not or cannot.

    It must not while somebody builds, or has changes to the old file that are not written: a query waits for
    nobody and drops nothing.
    """
    import duckdb

    with contextlib.suppress(OSError, duckdb.Error), turn(database.parent, wait_s=0.0) as held:
        if held and not log_of(database).exists() and place():
            return open_snapshot(database)
    return None


def _listed(root: Path, database: Path, files: pyarrow.Table, seen: tuple[int, ...]) -> pyarrow.Table:
    """The files, listed again where the index was replaced meanwhile: it may hold more than was listed."""
    return files if _identity(database) == seen else file_table(root)


def _open_current(database: Path, files: pyarrow.Table) -> DuckDBPyConnection | None:
    import duckdb

    connection = open_snapshot(database)
    if connection is None:
        return None
    with contextlib.suppress(duckdb.Error):
        if is_ours(connection) and not differences(connection, files):
            return connection
    connection.close()
    return None


def _updated(root: Path, database: Path, held: bool, files: pyarrow.Table) -> Index | None:
    """The index brought up to date, or None where there is none to start from."""
    import duckdb

    if not database.is_file():
        return None
    with contextlib.suppress(duckdb.Error, OSError, _NotOurs), _new_file(database, held) as fresh:
        copy_file(database, fresh)
        return _placed(fresh, database, lambda connection: _bring_up_to_date(connection, root, files))
    return None


def _rebuilt(root: Path, database: Path, held: bool) -> Index:
    with _new_file(database, held) as fresh:
        return _placed(fresh, database, lambda connection: _fill_at_once(connection, root))


def _fill_at_once(connection: DuckDBPyConnection, root: Path) -> None:
    with _transaction(connection):
        fill(connection, root)


def _bring_up_to_date(connection: DuckDBPyConnection, root: Path, files: pyarrow.Table) -> None:
    if not is_ours(connection):
        raise _NotOurs("an index made by this version of labkit was needed")
    with _transaction(connection):
        update(connection, root, files)


@contextlib.contextmanager
def _transaction(connection: DuckDBPyConnection) -> Iterator[None]:
    """Without one every statement would be written and synced by itself."""
    connection.begin()
    yield
    connection.commit()


def _identity(path: Path) -> tuple[int, ...]:
    """What tells one file from the one that replaced it; empty where there is none."""
    try:
        stat = path.stat()
    except OSError:
        return ()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _placed(fresh: Path, database: Path, make: Callable[[DuckDBPyConnection], None]) -> Index:
    """Make the new file, close it and move it to the database's name."""
    import duckdb

    with duckdb.connect(str(fresh)) as connection:
        make(connection)
        connection.execute("CHECKPOINT")
        index = _described(connection, database, rebuilt=True, dropped_log=log_of(database).exists())
    # A write-ahead log that someone left behind would be replayed into the new file.
    log_of(database).unlink(missing_ok=True)
    fresh.replace(database)
    return index


@contextlib.contextmanager
def _new_file(database: Path, held: bool) -> Iterator[Path]:
    """A hidden name beside the database; nothing is left of it, nor of those that killed builders left."""
    start = f".{database.name}."
    for left in database.parent.glob(f"{start}*"):
        if (held and ".new" in left.name) or _is_old(left):
            left.unlink(missing_ok=True)
    # Without the turn another builder may be at work, whose turn it is: its sweep must not meet this file.
    fresh = database.with_name(f"{start}{secrets.token_hex(4)}.{'new' if held else 'out-of-turn'}")
    try:
        yield fresh
    finally:
        fresh.unlink(missing_ok=True)
        log_of(fresh).unlink(missing_ok=True)


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > LEFT_S
    except OSError:
        return False


def _described(
    connection: DuckDBPyConnection, database: Path, rebuilt: bool, dropped_log: bool = False
) -> Index:
    ((count,),) = connection.execute("SELECT count(*) FROM runs").fetchall()
    rows = connection.execute("SELECT path, reason FROM damaged ORDER BY path").fetchall()
    return Index(database, count, tuple(Damaged(*row) for row in rows), rebuilt, dropped_log)
