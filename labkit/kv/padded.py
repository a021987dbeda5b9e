"""Padded: rows of different lengths in one cache. Knows how a row is written and masked, not who is in it.

Every row starts at slot 0 and has the layout that it has alone, a ring included; what lies behind a row's end
is room, and masked. So nothing moves when rows come and go, and a row that fills the width is not padded.
"""

from __future__ import annotations

from typing import Any, ClassVar

import mlx.core as mx
from mlx.utils import tree_map

from labkit.core.errors import SessionFailed
from labkit.kv.form import FORMS, Held, leaves, slots
from labkit.model.attention import CacheSpec


class Padded:
    """Rows of one form and one setting, at any positions; one token a row at a time.

    keys, values: as the rows' own class has them, `(B, kv_heads, room, width)` each leaf. offset: `(B,)`.
    """

    def __init__(self, lone: Any, held: Held, lengths: list[int], places: list[int]) -> None:
        """lone: a cache with the settings. places: the slot of each row's next token."""
        self.form, self.lone = FORMS[type(lone)], lone
        self.keys, self.values = held
        self.lengths, self.places = lengths, places
        self.offset = mx.array(lengths)

    @property
    def nbytes(self) -> int:
        return sum(leaf.nbytes for leaf in leaves((self.keys, self.values)))

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Held:
        """Write a token of every row, `(B, kv_heads, 1, size)`; gives the leaves up to the longest row."""
        if keys.shape[2] != 1:
            raise SessionFailed(
                "one token a row was needed from rows that decode together", got=keys.shape[2]
            )
        limit = self.form.limit(self.lone)
        places = [self.form.first(self.lone) if place == limit else place for place in self.places]
        self._make_room(max(places) + 1)
        index = _column(places)
        added = self.form.pack(self.lone, keys, values)
        self.keys, self.values = tree_map(
            lambda held, new: mx.put_along_axis(held, index, new, axis=2), (self.keys, self.values), added
        )
        self.lengths = [length + 1 for length in self.lengths]
        self.places = [place + 1 for place in places]
        self.offset = mx.array(self.lengths)
        return self.keys_and_values()

    def keys_and_values(self) -> Held:
        """The leaves up to the longest row."""
        width = max(self.form.filled(self.lone, self.lengths))
        if width == slots(self.keys):
            return self.keys, self.values
        return tree_map(lambda leaf: leaf[..., :width, :], (self.keys, self.values))

    def make_mask(
        self, N: int, window_size: int | None = None, return_array: bool = False
    ) -> mx.array | None:
        """Which slots each row's next token sees, `(B, 1, 1, width)`; None where that is all of them."""
        after = [length + 1 for length in self.lengths]
        sizes = self.form.filled(self.lone, after)
        limit = self.form.limit(self.lone)
        window = window_size if limit is None or (window_size or limit) < limit else None
        slides = window is not None and max(after) > window
        if not slides and min(sizes) == max(sizes):
            return None
        slot = mx.arange(max(sizes))
        mask = slot < _column(sizes)
        if window is not None and slides:
            # Of a ring that is full the next slot is the first again, which is the same modulo its size.
            mask = mask & ((_column(self.places) - slot) % _column(sizes) < window)
        return mask

    def _make_room(self, needed: int) -> None:
        room, limit = slots(self.keys), self.form.limit(self.lone)
        if needed <= room:
            return
        more = self.lone.step if limit is None else min(self.lone.step, limit - room)

        def widened(leaf: mx.array) -> mx.array:
            added = mx.zeros((*leaf.shape[:2], more, leaf.shape[3]), leaf.dtype)
            return mx.concatenate([leaf, added], axis=2)

        self.keys, self.values = tree_map(widened, (self.keys, self.values))


class PaddedCodes(Padded):
    """Rows of codes that mlx-lm's quantized attention reads."""

    @property
    def bits(self) -> int:
        return self.lone.bits

    @property
    def group_size(self) -> int:
        return self.lone.group_size


class PaddedAttending(Padded):
    """Rows of a class that attends itself."""

    SPEC: ClassVar[CacheSpec] = CacheSpec(attend=True)

    def attend(self, queries: mx.array, keys: Any, values: Any, **how: Any) -> mx.array:
        return self.lone.attend(queries, keys, values, **how)


def _column(numbers: list[int]) -> mx.array:
    """Numbers of the rows, `(B, 1, 1, 1)`."""
    return mx.array([[[[number]]] for number in numbers])
