"""Standings: the results of a lab as SQL, with the judged frontier among its tables. Reads only.

Which point dominates which is decided by `frontier`, not by SQL: the table is made when a query names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from labkit.frontier.table import frontier_frame
from labkit.store.query import FRONTIER_POINTS, ask, open_results

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")
FRONTIER = "frontier"
_NAMED = re.compile(rf"\b{FRONTIER}\b", re.IGNORECASE)

# Every column with its type, so that a lab without points has them too.
_TYPES = {
    "group": "BIGINT",
    "quiet": "BOOLEAN",
    "dominated_by": "VARCHAR[]",
    "missing": "VARCHAR[]",
    "trade_offs": "VARCHAR[]",
    **{
        f"{axis}{end}": "DOUBLE"
        for axis in ("speed", "quality", "size")
        for end in ("", "_low", "_high", "_margin", "_origin")
    },
}


def open_lab(root: Path | str | None = None, query: str | None = None) -> DuckDBPyConnection:
    """A connection to a lab's tables and views and to `frontier`, for the caller to close.

    root: None takes the nearest folder upwards with experiments/. query: what will be asked; the frontier is
    judged only where it is named there, or where no query is given.
    """
    connection = open_results(root)
    try:
        _add_named(connection, query)
    except BaseException:
        connection.close()
        raise
    return connection


def ask_lab(root: Path | str | None, work: Callable[[DuckDBPyConnection], T], query: str | None = None) -> T:
    """What `work` makes of such a connection, from the records where the index turns out to be damaged."""

    def with_frontier(connection: DuckDBPyConnection) -> T:
        _add_named(connection, query)
        return work(connection)

    return ask(root, with_frontier)


def _add_named(connection: DuckDBPyConnection, query: str | None) -> None:
    if query is None or _NAMED.search(query):
        _add_frontier(connection)


def _add_frontier(connection: DuckDBPyConnection) -> None:
    frame = frontier_frame(connection.execute(FRONTIER_POINTS).df())
    columns = ", ".join(f'"{name}"::{_TYPES.get(str(name), "VARCHAR")} AS "{name}"' for name in frame.columns)
    connection.register("judged", frame.astype(object).where(frame.notna(), None) if frame.empty else frame)
    connection.execute(f"CREATE TEMP TABLE {FRONTIER} AS SELECT {columns} FROM judged")
    connection.unregister("judged")
