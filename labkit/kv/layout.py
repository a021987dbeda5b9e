"""Layout: which layers of several rows are stacked and which go by rows. Knows caches, no graph.

A graph makes one mask for all layers of a kind, by the first of them; so all of a kind have one layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlx_lm.models.cache import ArraysCache, CacheList

from labkit.core.errors import SessionFailed
from labkit.kv.form import FORMS
from labkit.kv.stacked import stacks

# Slots that a stack may have for every one that its rows fill; beyond it each row attends by itself. On a CPU
# that costs no more; a GPU waits for every row's calls (H200, 8 rows: 0.4x of one call at 2.7 slots).
PADDING_LIMIT, GPU_PADDING_LIMIT = 2.0, 8.0
NO_PADDING = 1.0


def flat(caches: Sequence[Any]) -> list[Any]:
    """The caches of one row with lists of caches taken apart."""
    return [part for c in caches for part in (c.caches if type(c) is CacheList else (c,))]


def folded(layers: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    """Caches taken apart, put into lists again as those of `like` are."""
    rest = iter(layers)
    return [
        CacheList(*(next(rest) for _ in cache.caches)) if type(cache) is CacheList else next(rest)
        for cache in like
    ]


def go_by_rows(
    columns: Sequence[Sequence[Any]], *, by_name: bool, settled: bool, padding_limit: float = PADDING_LIMIT
) -> list[bool]:
    """Whether each layer, given as its rows' caches, keeps them as they are.

    settled: no scheme changes these caches any more. padding_limit: slots for every one that is filled, which
    a graph that attends by itself takes no notice of. Raises SessionFailed where a layer can be neither.
    """
    if not by_name:
        _check_stacks(columns)
        return [False] * len(columns)
    attending = [type(column[0]) is not ArraysCache for column in columns]
    kinds = [_kind(column) for column in columns]
    if not settled or any(a and kind is None for a, kind in zip(attending, kinds, strict=True)):
        return attending
    apart = {
        kind
        for column, kind, attends in zip(columns, kinds, attending, strict=True)
        if attends and not (stacks(column) and _padding(column) <= padding_limit)
    }
    return [a and kind in apart for a, kind in zip(attending, kinds, strict=True)]


def why_not(cache: Any, *, by_name: bool) -> str | None:
    """Why rows with this cache, filled or not, cannot decode in one forward; None where they can."""
    kind = type(cache)
    if kind in FORMS or kind is ArraysCache:
        return None
    if kind.__module__.partition(".")[0] == "mlx_lm":
        return "its model asks more of it than one cache of several rows can give"
    if not by_name:
        return "it attends row by row, and the model does not call mlx-lm's attention by its name"
    if not callable(getattr(kind, "update_and_fetch", None)):
        return "it has no update_and_fetch"
    return None


def check_even(columns: Sequence[Sequence[Any]], reason: str) -> None:
    """Raise SessionFailed, with the graph's reason, for rows that do not stand at one position."""
    for column in columns:
        offsets = sorted({cache.offset for cache in column if type(cache) is not ArraysCache})
        if len(offsets) > 1:
            need = f"rows at one position were needed from this model: {reason}"
            raise SessionFailed(need, got=offsets, options=["let each row decode alone"])


def _kind(column: Sequence[Any]) -> bool | None:
    """Whether a layer's caches are rings; None where one has a form that is not known."""
    rings = {FORMS[type(c)].ring if type(c) in FORMS else None for c in column}
    return rings.pop() if len(rings) == 1 else None


def _padding(column: Sequence[Any]) -> float:
    """Slots of a stack of these rows for every one that they fill."""
    filled = FORMS[type(column[0])].filled(column[0], [cache.offset for cache in column])
    return len(filled) * max(filled) / max(1, sum(filled))


def _check_stacks(columns: Sequence[Sequence[Any]]) -> None:
    for column in columns:
        if not stacks(column):
            names = ", ".join(dict.fromkeys(type(cache).__name__ for cache in column))
            need = "rows with caches of one class and setting were needed, since this model attends by itself"
            raise SessionFailed(need, got=names, options=["let each row decode alone"])
