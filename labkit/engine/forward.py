"""Forward: one forward under way for one row, from its logits to the token drawn from them."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from labkit.core.taps import Tapped


@dataclass(frozen=True, slots=True)
class Forward:
    """logits: `(1, vocab)` of the graph. token: `()`. logprobs: `(1, vocab)`.

    top: what `alternatives` gives, empty where none are asked for. drawn, row: where the token stands in the
    `(rows,)` tokens that were drawn together with it, so that one readback gives them all; None alone.
    """

    logits: mx.array
    token: mx.array
    logprobs: mx.array
    top: tuple[mx.array, ...] = ()
    tapped: Tapped | None = None
    drawn: mx.array | None = None
    row: int = 0
