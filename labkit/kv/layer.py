"""Layer: one layer of the rows that decode together, in one of three layouts. Knows no schemes, no graph.

`cache` is what the graph is given; a row goes in as its cache and comes out as one.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Protocol

from labkit.kv.by_rows import ByRows
from labkit.kv.stacked import copied, row_of, stack


class Layer(Protocol):
    """Rows of one layer."""

    cache: Any

    def row(self, index: int) -> Any:
        """A row's cache: its own, or a view that holds all rows in memory."""
        ...

    def own(self, index: int) -> Any:
        """A row's cache, copied."""
        ...

    def bytes_by_row(self) -> list[int]:
        """Bytes allocated for each row."""
        ...

    def takes(self, column: Sequence[Any], views: Sequence[Sequence[Any]]) -> bool:
        """Take these caches as the rows, where that moves no array; else False.

        views: what each of `column` held when `row` gave it.
        """
        ...


class Alone:
    """The only row, as it is."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache

    def row(self, index: int) -> Any:
        return self.cache

    def own(self, index: int) -> Any:
        return copy.deepcopy(self.cache)

    def bytes_by_row(self) -> list[int]:
        return [self.cache.nbytes]

    def takes(self, column: Sequence[Any], views: Sequence[Sequence[Any]]) -> bool:
        return False


class Stack:
    """Rows in one array."""

    def __init__(self, column: Sequence[Any]) -> None:
        self.cache = stack(column)
        self._rows = len(column)

    def row(self, index: int) -> Any:
        return row_of(self.cache, index)

    def own(self, index: int) -> Any:
        return copied(row_of(self.cache, index))

    def bytes_by_row(self) -> list[int]:
        return [self.cache.nbytes // self._rows] * self._rows

    def takes(self, column: Sequence[Any], views: Sequence[Sequence[Any]]) -> bool:
        return all(_same(content(row), view) for row, view in zip(column, views, strict=True))


class Apart:
    """Rows with caches of their own."""

    def __init__(self, column: Sequence[Any], failed: dict[int, Exception]) -> None:
        self.cache = ByRows(list(column), failed)

    def row(self, index: int) -> Any:
        return self.cache.rows[index]

    def own(self, index: int) -> Any:
        return copy.deepcopy(self.cache.rows[index])

    def bytes_by_row(self) -> list[int]:
        return [row.nbytes for row in self.cache.rows]

    def takes(self, column: Sequence[Any], views: Sequence[Sequence[Any]]) -> bool:
        self.cache.rows = list(column)
        return True


def content(cache: Any) -> list[Any]:
    """What a cache is made of, itself included."""
    return [cache, *vars(cache).values()]


def _same(now: Sequence[Any], before: Sequence[Any]) -> bool:
    return len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True))
