"""Positions: graphs whose rows can decode in one forward only at one position. Knows classes, no caches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# By the module of mlx-lm that defines the attention (0.32.2); its own batches fail there, or are wrong, too.
_EVEN_ONLY: Mapping[str, str] = {
    "mlx_lm.models.afm7": "its last layers take a row's position from the length of the keys",
    "mlx_lm.models.gemma2": "its attention has no place for a mask of several rows",
    "mlx_lm.models.gpt_bigcode": "it makes one position of all rows",
    "mlx_lm.models.phi3small": "its attention adds masks, and has no place for one of several rows",
}


def why_even(graph: Any) -> str | None:
    """Why rows at different positions cannot decode in one forward of this graph; None where they can."""
    modules = dict.fromkeys(type(part).__module__ for part in graph.modules())
    return next((_EVEN_ONLY[module] for module in modules if module in _EVEN_ONLY), None)
