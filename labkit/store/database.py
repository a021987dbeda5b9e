"""Database: the tables of the index in one DuckDB connection, made whole or brought up to date.

Knows the lab's files and the tables; not where the database lies, nor how it is put into place.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.core.errors import LabkitError
from labkit.store.batch import BATCH_TABLES, Batch, arrow_table, damaged_row
from labkit.store.decisions import read_decisions
from labkit.store.files import EXPERIMENTS, file_table, is_result
from labkit.store.graveyard import graveyard_path, read_burials
from labkit.store.read import Damaged, one_line
from labkit.store.readers import read_batches
from labkit.store.recipes import promoted_path, read_recipes
from labkit.store.renewals import read_renewals, renewed_path
from labkit.store.reopenings import read_reopenings, reopened_path
from labkit.store.rows import Row, metric_rows
from labkit.store.schema import INDEX_VERSION, RECORD_TABLES, TABLES
from labkit.store.views import VIEWS, schema_hash, statements

if TYPE_CHECKING:
    import pyarrow
    from duckdb import DuckDBPyConnection

# An INSERT of a few thousand rows takes as long as one of a hundred thousand.
BATCHES = 20
DECISION_FILES = (
    (promoted_path, read_recipes),
    (renewed_path, read_renewals),
    (reopened_path, read_reopenings),
    (graveyard_path, read_burials),
)

# Files that came, changed or went since the index was made; `now` holds the files as they are.
_DIFFERENT = """
SELECT path, now.path IS NOT NULL AS there, files.path IS NOT NULL AS known
FROM now FULL JOIN files USING (path)
WHERE now.bytes IS DISTINCT FROM files.bytes OR now.mtime_ns IS DISTINCT FROM files.mtime_ns
"""


def fill(connection: DuckDBPyConnection, root: Path, processes: int | None = None) -> None:
    """Make every table and view of the lab in an empty database."""
    for statement in statements():
        connection.execute(statement)
    _insert(connection, "index_info", [(INDEX_VERSION, schema_hash())])
    _insert(connection, "metrics", metric_rows())
    # Files are listed before they are read: a record that comes in between makes the index stale, not wrong.
    files = file_table(root)
    _add_records(connection, root, [p for p in files["path"].to_pylist() if is_result(p)], processes)
    _add_decisions(connection, root)
    _insert_table(connection, "files", files)


def update(connection: DuckDBPyConnection, root: Path, files: pyarrow.Table) -> bool:
    """Bring the tables up to date with the files listed, reading those that differ; say whether any does."""
    different = differences(connection, files)
    if not different:
        return False
    records = [(path, there, known) for path, there, known in different if is_result(path)]
    _remove_records(connection, [path for path, _, known in records if known])
    _add_records(connection, root, [path for path, there, _ in records if there])
    if len(records) < len(different):
        _add_decisions(connection, root)
    connection.execute("DELETE FROM files")
    _insert_table(connection, "files", files)
    return True


def differences(connection: DuckDBPyConnection, files: pyarrow.Table) -> list[tuple[str, bool, bool]]:
    """The paths of files that differ from the index's: whether each is there, and whether it was known."""
    connection.register("now", files)
    try:
        return connection.execute(_DIFFERENT).fetchall()
    finally:
        connection.unregister("now")


def is_whole(connection: DuckDBPyConnection) -> bool:
    """Whether every value of every table can be read, which DuckDB checks block by block."""
    import duckdb

    try:
        for name, columns in TABLES.items():
            connection.execute(f"SELECT bit_xor(hash({', '.join(columns)})) FROM {name}").fetchall()
    except duckdb.Error:
        return False
    return True


def is_ours(connection: DuckDBPyConnection) -> bool:
    """Whether the database holds the tables and views of this version of labkit, and no others."""
    named = {name for (name,) in connection.execute(_NAMES).fetchall()}
    if named != {*TABLES, *VIEWS}:
        return False
    info = connection.execute("SELECT version, schema_hash FROM index_info").fetchall()
    return info == [(INDEX_VERSION, schema_hash())]


_NAMES = """
SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() AND NOT internal
UNION ALL
SELECT view_name FROM duckdb_views() WHERE database_name = current_database() AND NOT internal
"""


def _add_records(
    connection: DuckDBPyConnection, root: Path, paths: Sequence[str], processes: int | None = None
) -> None:
    batches = read_batches(root, paths, processes)
    while several := list(itertools.islice(batches, BATCHES)):
        _insert_batches(connection, several)


def _insert_batches(connection: DuckDBPyConnection, batches: Sequence[Batch]) -> None:
    import pyarrow

    for name in BATCH_TABLES:
        _insert_table(connection, name, pyarrow.concat_tables([batch[name] for batch in batches]))


def _remove_records(connection: DuckDBPyConnection, paths: Sequence[str]) -> None:
    import pyarrow

    if not paths:
        return
    connection.register("stale", pyarrow.table({"path": pyarrow.array(paths, pyarrow.string())}))
    for name in RECORD_TABLES:
        if name != "runs":
            connection.execute(
                f"DELETE FROM {name} WHERE (run_id, machine) IN "
                "(SELECT (run_id, machine) FROM runs JOIN stale USING (path))"
            )
    for name in ("runs", "damaged"):
        connection.execute(f"DELETE FROM {name} WHERE path IN (SELECT path FROM stale)")
    connection.unregister("stale")


def _add_decisions(connection: DuckDBPyConnection, root: Path) -> None:
    """The decisions anew: they are few. While one of their files is broken there are none."""
    connection.execute(f"DELETE FROM damaged WHERE starts_with(path, '{EXPERIMENTS}/')")
    connection.execute("DELETE FROM decisions")
    try:
        found = read_decisions(root)
    except (LabkitError, OSError, ValueError):
        _insert(connection, "damaged", [damaged_row(bad) for bad in broken_decisions(root)])
        return
    rows = [(d.kind, d.name, d.decided_at, d.why, d.outcome, list(d.evidence)) for d in found]
    _insert(connection, "decisions", rows)


def broken_decisions(root: Path) -> list[Damaged]:
    """The files of decisions that cannot be read, with the reason."""
    found: list[Damaged] = []
    for path, read in DECISION_FILES:
        try:
            read(root)
        except LabkitError as error:
            found.append(Damaged(path(root).relative_to(root).as_posix(), one_line(error)))
        except (OSError, ValueError) as error:
            found.append(Damaged(path(root).relative_to(root).as_posix(), f"{type(error).__name__}: {error}"))
    return found


def _insert(connection: DuckDBPyConnection, name: str, rows: Sequence[Row]) -> None:
    _insert_table(connection, name, arrow_table(name, rows))


def _insert_table(connection: DuckDBPyConnection, name: str, table: pyarrow.Table) -> None:
    if table.num_rows:
        connection.register("incoming", table)
        connection.execute(f"INSERT INTO {name} SELECT * FROM incoming")
        connection.unregister("incoming")
