"""Together: the caches of several rows as one list that a graph takes in place of one row's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labkit.kv.base import Scheme


class Together:
    """Rows of one graph that decode in one forward; `caches` is what the graph is called with.

    A layer whose rows can be stacked is one array, padded on the left where lengths differ; any other layer
    keeps the caches of its rows and attends row by row.
    """

    caches: list[Any]

    def __init__(self, *, by_name: bool) -> None:
        """by_name: whether the graph's attention takes whatever a cache gives (`Profile.quantizes`)."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Rows."""
        raise NotImplementedError

    def add(self, rows: Sequence[list[Any]], schemes: Sequence[Scheme]) -> None:
        """Take over the settled, filled caches of more rows, one list per row; they are the last rows.

        The lists and their caches must not be used by the caller afterwards. Raises SessionFailed for rows
        that cannot run together, and nothing has changed then.
        """
        raise NotImplementedError

    def keep(self, indices: Sequence[int]) -> None:
        """Keep these rows, in this order; those that are left out are freed."""
        raise NotImplementedError

    def take(self, index: int) -> list[Any]:
        """The caches of one row, as it would have them alone; the row stays. Shares nothing mutable."""
        raise NotImplementedError

    def settle(self) -> None:
        """Bring every row to its scheme's form; called after each forward, as `Scheme.settle` is."""
        raise NotImplementedError

    def failures(self) -> Mapping[int, Exception]:
        """Rows in which a cache raised during the forwards since the last call; their results are void."""
        raise NotImplementedError

    def names(self, index: int) -> tuple[str, ...]:
        """What `describe` would say of one row's caches, had it them alone."""
        raise NotImplementedError

    def row_bytes(self, index: int) -> int:
        """Bytes allocated for one row, its share of the padding included."""
        raise NotImplementedError


def why_not_together(caches: Sequence[Any], *, by_name: bool) -> str | None:
    """Why rows with caches like these (one row's, filled or not) cannot run together; None where they can."""
    raise NotImplementedError
