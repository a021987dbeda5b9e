"""Question: one SELECT over a lab's results, answered without the right to write or to read other files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.core.errors import LabkitError
from labkit.lab.standings import FRONTIER, open_lab
from labkit.store.schema import TABLES
from labkit.store.views import INTERNAL, VIEWS

if TYPE_CHECKING:
    import pandas
    from duckdb import DuckDBPyConnection

# MULTI is a PIVOT over the values of a column, which DuckDB asks for first.
_READS = ("SELECT", "MULTI")
_EXPLAIN = re.compile(r"\s*EXPLAIN(\s+ANALYZE)?\s", re.IGNORECASE)
# No file of the machine, no variable of the calling Python, and no way back.
_LOCK = (
    "SET enable_external_access = false",
    "SET python_enable_replacements = false",
    "SET lock_configuration = true",
)
_AT_ONCE = 100_000
_CANDIDATES = re.compile(r"Candidate bindings: (.*)")


class QueryInvalid(LabkitError):
    """A query that is no single SELECT, or that DuckDB cannot answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a query as DuckDB gives them. columns: names, in order, which may come twice."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: int = 0


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or view that can be asked. columns: name and type of each."""

    name: str
    kind: str
    columns: tuple[tuple[str, str], ...]


def answer(query: str, root: Path | str | None = None, limit: int | None = None) -> Answer:
    """The answer to one SELECT. limit: how many rows to keep; `more` counts the others.

    Raises QueryInvalid, with DuckDB's message and the valid names where one was wrong.
    """
    with _asked(query, root) as connection:
        columns = tuple(str(column[0]) for column in connection.description or ())
        rows = connection.fetchall() if limit is None else connection.fetchmany(limit)
        return Answer(columns, tuple(rows), 0 if limit is None else _count_rest(connection))


def sql(query: str, root: Path | str | None = None) -> pandas.DataFrame:
    """The answer to one SELECT over a lab's results as a frame: `results`, `history`, `frontier` and more.

    root: the lab; None takes the nearest folder upwards with experiments/. Raises QueryInvalid as `answer`.
    """
    with _asked(query, root) as connection:
        return connection.df()


def relations(root: Path | str | None = None) -> tuple[Relation, ...]:
    """The tables and views of a lab, views first, without those that serve the index itself."""
    with open_lab(root) as connection:
        return tuple(_relation(connection, name) for name in relation_names())


def relation_names() -> tuple[str, ...]:
    """What can stand behind FROM."""
    return (*sorted({FRONTIER, *VIEWS}), *sorted(set(TABLES) - INTERNAL))


def _relation(connection: DuckDBPyConnection, name: str) -> Relation:
    described = connection.execute(f"DESCRIBE {name}").fetchall()
    return Relation(name, "table" if name in TABLES else "view", tuple((row[0], row[1]) for row in described))


@contextmanager
def _asked(query: str, root: Path | str | None) -> Iterator[DuckDBPyConnection]:
    """A connection that has executed the query; what goes wrong until its rows are fetched is one message."""
    import duckdb

    with open_lab(root, query) as connection:
        try:
            _check_reads(connection, query)
            for statement in _LOCK:
                connection.execute(statement)
            connection.execute(query)
            yield connection
        except duckdb.Error as error:
            raise _wrong(connection, error) from error


def _check_reads(connection: DuckDBPyConnection, query: str) -> None:
    """Raise QueryInvalid for anything but one statement that reads, or the EXPLAIN of one."""
    explained = _EXPLAIN.match(query)
    statements = connection.extract_statements(query[explained.end() :] if explained else query)
    kinds = [statement.type.name for statement in statements]
    if len(kinds) == 1 and kinds[0] in _READS:
        return
    raise QueryInvalid(
        "one SELECT was needed: the records are the truth, and the index over them is only read",
        got=", ".join(kind.replace("_", " ") for kind in kinds) or "no statement",
        next_step="labkit sql lists what can be asked; labkit export copies it for other tools",
    )


def _wrong(connection: DuckDBPyConnection, error: Exception) -> QueryInvalid:
    """DuckDB's message without its advice, and the names that would have been right."""
    import duckdb

    text = str(error)
    what = text.split("\n\n", maxsplit=1)[0].splitlines()[0].strip()
    columns = _CANDIDATES.search(text)
    if columns:
        return QueryInvalid("a query with known columns was needed", got=what, options=_unquoted(columns[1]))
    if isinstance(error, duckdb.CatalogException) and "Table with name" in text:
        return QueryInvalid("a known table or view was needed", got=what, options=relation_names())
    return QueryInvalid("a query that DuckDB can answer was needed", got=what, next_step=_where(text))


def _unquoted(listed: str) -> list[str]:
    return [name.strip().strip('"') for name in listed.split(",")]


def _where(text: str) -> str | None:
    """The line that DuckDB points at."""
    pointed = re.search(r"LINE \d+: (.*)", text)
    return f"look at: {pointed[1].strip()}" if pointed else None


def _count_rest(connection: DuckDBPyConnection) -> int:
    return sum(len(rows) for rows in iter(lambda: connection.fetchmany(_AT_ONCE), []))
