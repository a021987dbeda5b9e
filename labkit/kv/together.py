"""Together: the caches of several rows as one list that a graph takes in place of one row's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from labkit.core.errors import SessionFailed
from labkit.kv.base import Scheme, describe, settles_at
from labkit.kv.layer import Alone, Apart, Layer, Stack, content
from labkit.kv.layout import PADDING_LIMIT, check_even, flat, folded, go_by_rows, why_not


class Together:
    """Rows of one graph that decode in one forward, a token each; the graph is called with `caches`.

    A layer whose rows can be stacked is one array, padded at the end where lengths differ; any other layer
    keeps the caches of its rows and attends row by row. A row by itself is its own caches. Whether a row is
    padded is known without reading an array.
    """

    caches: list[Any]

    def __init__(
        self, *, by_name: bool, why_even: str | None = None, padding_limit: float = PADDING_LIMIT
    ) -> None:
        """by_name: whether the graph's attention takes whatever a cache gives (`Profile.quantizes`).

        why_even: why its rows must stand at one position (`positions.why_even`), None where they need not.
        padding_limit: slots of a stack for every one that is filled; beyond it, rows attend by themselves.
        """
        self._by_name, self._why_even, self._padding_limit = by_name, why_even, padding_limit
        self._schemes: list[Scheme] = []
        self._layers: list[Layer] = []
        self._failed: dict[int, Exception] = {}
        self._moving = False
        self.caches = []

    def __len__(self) -> int:
        """Rows."""
        return len(self._schemes)

    def add(self, rows: Sequence[list[Any]], schemes: Sequence[Scheme]) -> None:
        """Take over the settled, filled caches of more rows, one list per row; they are the last rows.

        The lists and their caches must not be used by the caller afterwards. Raises SessionFailed for rows
        that cannot run together, and nothing has changed then.
        """
        for caches in rows if len(self) + len(rows) > 1 else ():
            reason = why_not_together(caches, by_name=self._by_name)
            if reason is not None:
                raise SessionFailed("caches that decode in one forward were needed", got=reason)
        self._lay_out([*self._rows(), *rows], [*self._schemes, *schemes], self._failed)

    def pad_up_to(self, limit: float) -> None:
        """Take another padding limit, and lay out the rows by it."""
        if limit != self._padding_limit:
            self._padding_limit = limit
            self._lay_out(self._rows(), self._schemes, self._failed)

    def keep(self, indices: Sequence[int]) -> None:
        """Keep these rows, in this order; those that are left out are freed."""
        if list(indices) == list(range(len(self))):
            return
        rows, schemes, failed = self._rows(), self._schemes, self._failed
        still = {new: failed[old] for new, old in enumerate(indices) if old in failed}
        self._lay_out([rows[index] for index in indices], [schemes[index] for index in indices], still)

    def take(self, index: int) -> list[Any]:
        """The caches of one row, as it would have them alone; the row stays. Shares nothing mutable."""
        return folded([layer.own(index) for layer in self._layers], self.caches)

    def settle(self) -> None:
        """Bring every row to its scheme's form; called after each forward, as `Scheme.settle` is."""
        if not self._moving:
            return
        rows = self._rows()
        views = [[content(cache) for cache in column] for column in _columns(rows)]
        for index, row in enumerate(rows):
            if index not in self._failed:
                self._settle_row(index, row)
        given = zip(self._layers, _columns(rows), views, strict=True)
        taken = [layer.takes(column, view) for layer, column, view in given]
        if not all(taken) or not _any_moves(rows, self._schemes):
            self._lay_out(rows, self._schemes, self._failed)

    def failures(self) -> Mapping[int, Exception]:
        """Rows in which a cache raised during the forwards since the last call; their results are void."""
        found = dict(self._failed)
        self._failed.clear()
        return found

    def names(self, index: int) -> tuple[str, ...]:
        """What `describe` would say of one row's caches, had it them alone."""
        return tuple(describe(cache) for cache in self._row(index))

    def bytes_by_row(self) -> list[int]:
        """Bytes allocated for each row, its share of the padding included."""
        columns = [layer.bytes_by_row() for layer in self._layers]
        return [sum(row) for row in zip(*columns, strict=True)]

    def _lay_out(
        self, rows: Sequence[list[Any]], schemes: Sequence[Scheme], failed: Mapping[int, Exception]
    ) -> None:
        """Take these rows in place of those that are here."""
        moving, noted = _any_moves(rows, schemes), dict(failed)
        columns = _columns(rows)
        if self._why_even is not None:
            check_even(columns, self._why_even)
        if len(rows) > 1:
            apart = go_by_rows(
                columns, by_name=self._by_name, settled=not moving, padding_limit=self._padding_limit
            )
            laid = zip(columns, apart, strict=True)
            layers: list[Layer] = [Apart(column, noted) if a else Stack(column) for column, a in laid]
        else:
            layers = [Alone(column[0]) for column in columns]
        self._layers, self._schemes, self._moving, self._failed = layers, list(schemes), moving, noted
        self.caches = folded([layer.cache for layer in layers], rows[0]) if rows else []

    def _settle_row(self, index: int, row: list[Any]) -> None:
        try:
            self._schemes[index].settle(row)
        except Exception as error:
            self._failed[index] = error

    def _rows(self) -> list[list[Any]]:
        return [self._row(index) for index in range(len(self))]

    def _row(self, index: int) -> list[Any]:
        return folded([layer.row(index) for layer in self._layers], self.caches)


def why_not_together(caches: Sequence[Any], *, by_name: bool) -> str | None:
    """Why rows with caches like these (one row's, filled or not) cannot run together; None where they can."""
    for index, cache in enumerate(caches):
        for part in flat([cache]):
            reason = why_not(part, by_name=by_name)
            if reason is not None:
                return f"{type(part).__name__} of layer {index}: {reason}"
    return None


def _columns(rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """The caches of every layer, lists of caches taken apart."""
    return list(zip(*(flat(row) for row in rows), strict=True))


def _any_moves(rows: Sequence[Sequence[Any]], schemes: Sequence[Scheme]) -> bool:
    """Whether a scheme may still change the caches of a row."""
    return any(_moves(scheme, row) for scheme, row in zip(schemes, rows, strict=True))


def _moves(scheme: Scheme, row: Sequence[Any]) -> bool:
    end = settles_at(scheme)
    return end is None or any(getattr(cache, "offset", end) < end for cache in flat(row))
