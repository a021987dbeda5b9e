"""ByRows: one layer of several rows, each with a cache of its own that attends as it does alone.

Knows rows and what a cache may raise; what the caches store is theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import mlx.core as mx
from mlx_lm.models.base import create_attention_mask, scaled_dot_product_attention

from labkit.core.errors import SessionFailed
from labkit.model.attention import CacheSpec


class RowMasks(tuple[Any, ...]):
    """The mask of every row, on its way through a graph."""

    __slots__ = ()


class ByRows:
    """The rows' own caches of one layer. A row in which one raises gets zeros, and is noted in `failed`."""

    SPEC: ClassVar[CacheSpec] = CacheSpec(attend=True)

    def __init__(self, rows: list[Any], failed: dict[int, Exception]) -> None:
        """failed: the first error of each row, shared by the layers."""
        self.rows, self.failed = rows, failed
        self._value_size = 0

    @property
    def offset(self) -> Any:
        """Positions of the rows, an int where they are one and `(B,)` where not."""
        offsets = [row.offset for row in self.rows]
        return offsets[0] if len(set(offsets)) == 1 else mx.array(offsets)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[list[Any], list[Any]]:
        """Give every row its slice `(1, kv_heads, n, size)`; what each gave, None for a failed row."""
        self._value_size = values.shape[-1]
        return self._fetched(lambda i, row: row.update_and_fetch(keys[i : i + 1], values[i : i + 1]))

    def keys_and_values(self) -> tuple[list[Any], list[Any]]:
        """What each row's last update gave."""
        return self._fetched(lambda i, row: row.keys_and_values())

    def make_mask(self, N: int, window_size: int | None = None, return_array: bool = False) -> Any:
        """The rows' own masks, None where no row has one."""
        tokens = mx.zeros((1, N))
        how = {"window_size": window_size, "return_array": return_array}
        masks = self._each(lambda i, row: create_attention_mask(tokens, row, **how))
        return None if all(mask is None for mask in masks) else RowMasks(masks)

    def attend(
        self,
        queries: mx.array,
        keys: list[Any],
        values: list[Any],
        *,
        scale: float,
        mask: Any,
        sinks: mx.array | None = None,
    ) -> mx.array:
        """Attention `(B, heads, n, value_size)`, row by row."""
        shape = (1, *queries.shape[1:3], self._value_size)

        def attended(i: int, row: Any) -> mx.array:
            how = {"scale": scale, "mask": _of_row(mask, i, len(self.rows)), "sinks": sinks}
            output = _attend(row, queries[i : i + 1], keys[i], values[i], how)
            if output.shape != shape:
                raise SessionFailed(
                    f"attention of shape {shape} was needed from {type(row).__name__}", got=output.shape
                )
            return output

        outputs = self._each(attended)
        zeros = mx.zeros(shape, queries.dtype)
        return mx.concatenate([zeros if i in self.failed else output for i, output in enumerate(outputs)])

    def _fetched(self, fetch: Callable[[int, Any], tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
        pairs = [pair or (None, None) for pair in self._each(fetch)]
        return [keys for keys, _ in pairs], [values for _, values in pairs]

    def _each(self, work: Callable[[int, Any], Any]) -> list[Any]:
        """The work's result of every row, None where it raised now or before."""
        results: list[Any] = []
        for index, row in enumerate(self.rows):
            result = None
            if index not in self.failed:
                try:
                    result = work(index, row)
                except Exception as error:
                    self.failed[index] = error
            results.append(result)
        return results


def _attend(row: Any, queries: mx.array, keys: Any, values: Any, how: dict[str, Any]) -> mx.array:
    spec: CacheSpec | None = getattr(type(row), "SPEC", None)
    if spec is not None and spec.attend:
        return row.attend(queries, keys, values, **how)
    return scaled_dot_product_attention(queries, keys, values, cache=row, **how)


def _of_row(mask: Any, index: int, rows: int) -> Any:
    """One row's part of a mask, which may be one that the graph made for all of them."""
    if isinstance(mask, RowMasks):
        return mask[index]
    split = isinstance(mask, mx.array) and mask.ndim == 4 and mask.shape[0] == rows
    return mask[index : index + 1] if split else mask
