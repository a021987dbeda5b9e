"""Question: one SELECT over a lab's results, answered without the right to write or to read other files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from labkit.core.errors import LabkitError
from labkit.lab.reading.standings import FRONTIER, ask_lab
from labkit.store.query import damaged_files
from labkit.store.read import Damaged
from labkit.store.schema import TABLES
from labkit.store.views import INTERNAL, VIEWS

if TYPE_CHECKING:
    import pandas
    from duckdb import DuckDBPyConnection

T = TypeVar("T")
# How a statement begins that reads, and what none of its words may be: a WITH may hold statements that write.
_BEGINS = frozenset({"SELECT", "FROM", "WITH", "PIVOT", "PIVOT_WIDER"})
_WRITES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "COPY", "CREATE", "TRUNCATE"})
# In the parsed tree of a SELECT; a string of the query that says the same has its quotes escaped there.
_WRITING = re.compile(r'"type":"(\w+)_QUERY_NODE"')
_WORD = re.compile(rb"\w+")
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
    """The rows of a query as DuckDB gives them. columns: names, in order, which may come twice.

    more: how many rows were left out. damaged: the files that could not be read and are in no answer.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: int = 0
    damaged: tuple[Damaged, ...] = ()


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

    def fetched(connection: DuckDBPyConnection) -> Answer:
        columns = tuple(str(column[0]) for column in connection.description or ())
        rows = connection.fetchall() if limit is None else connection.fetchmany(limit)
        more = 0 if limit is None else _count_rest(connection)
        return Answer(columns, tuple(rows), more, damaged_files(connection))

    return _asked(query, root, fetched)


def sql(query: str, root: Path | str | None = None) -> pandas.DataFrame:
    """The answer to one SELECT over a lab's results as a frame: `results`, `history`, `frontier` and more.

    root: the lab; None takes the nearest folder upwards with experiments/. Raises QueryInvalid as `answer`.
    """
    return _asked(query, root, lambda connection: connection.df())


def relations(root: Path | str | None = None) -> tuple[Relation, ...]:
    """The tables and views of a lab, views first, without those that serve the index itself."""
    return ask_lab(root, lambda connection: tuple(_relation(connection, n) for n in relation_names()))


def relation_names() -> tuple[str, ...]:
    """What can stand behind FROM."""
    return (*sorted({FRONTIER, *VIEWS}), *sorted(set(TABLES) - INTERNAL))


def _relation(connection: DuckDBPyConnection, name: str) -> Relation:
    described = connection.execute(f"DESCRIBE {name}").fetchall()
    return Relation(name, "table" if name in TABLES else "view", tuple((row[0], row[1]) for row in described))


def _asked(query: str, root: Path | str | None, fetched: Callable[[DuckDBPyConnection], T]) -> T:
    """What `fetched` makes of a connection that has executed the query; what goes wrong is one message."""
    import duckdb

    def work(connection: DuckDBPyConnection) -> T:
        _check_reads(connection, query)
        for statement in _LOCK:
            connection.execute(statement)
        connection.execute(query)
        return fetched(connection)

    try:
        return ask_lab(root, work, query)
    except duckdb.Error as error:
        raise _wrong(error) from error


def _check_reads(connection: DuckDBPyConnection, query: str) -> None:
    """Raise QueryInvalid for anything but one statement that reads, or the EXPLAIN of one."""
    explained = _EXPLAIN.match(query)
    text = query[explained.end() :] if explained else query
    kinds = [statement.type.name for statement in connection.extract_statements(text)]
    if len(kinds) == 1 and kinds[0] in ("SELECT", "MULTI"):
        kinds = list(_written(connection, text, kinds[0]))
        if not kinds:
            return
    raise QueryInvalid(
        "one SELECT was needed: the records are the truth, and the index over them is only read",
        got=", ".join(kind.replace("_", " ") for kind in kinds) or "no statement",
        next_step="labkit sql lists what can be asked; labkit export copies it for other tools",
    )


def _written(connection: DuckDBPyConnection, text: str, kind: str) -> Iterator[str]:
    """What writes in one statement. MULTI has no parsed tree: a PIVOT over the values of a column in it."""
    found = (
        connection.execute("SELECT json_serialize_sql(?)", [text]).fetchone() if kind == "SELECT" else None
    )
    tree = found[0] if found else ""
    yield from _WRITING.findall(tree) if tree.startswith('{"error":false') else _writing_words(text)


def _writing_words(text: str) -> Iterator[str]:
    """The words of a statement that tell that it writes; what stands in quotes or comments is none."""
    import duckdb

    data, kinds = text.encode(), duckdb.token_type
    tokens = [(start, kind) for start, kind in duckdb.tokenize(text) if kind != kinds.comment]
    found = (_WORD.match(data, start) for start, kind in tokens if kind == kinds.keyword)
    words = [word[0].decode().upper() for word in found if word]
    if not tokens or (tokens[0][1] == kinds.keyword and words[0] not in _BEGINS):
        yield words[0] if words else "no statement"
    yield from (word for word in words if word in _WRITES)


def _wrong(error: Exception) -> QueryInvalid:
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
