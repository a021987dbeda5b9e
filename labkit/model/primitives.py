"""Primitives: what one decode step of a graph is made of, counted without running it."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

_NODE = re.compile(r'label ?= ?"([A-Za-z]\w*)"')


def count_primitives(
    graph: Any, make: Callable[[Any], list[Any]], settle: Callable[[list[Any]], None]
) -> Counter[str]:
    """The primitives of a step over caches that hold two tokens, by mlx's name.

    Over empty caches where those of the model cannot be filled from outside (DeepSeek V4.1).

    graph: an mlx-lm model, whose weights may be lazy and are not read. make, settle: of the KV scheme.
    """
    import mlx.core as mx

    caches = make(graph)
    graph(mx.zeros((1, 2), mx.int32), cache=caches)
    settle(caches)
    if not all(map(_filled_with_zeros, caches)):
        caches = make(graph)
    logits = graph(mx.zeros((1, 1), mx.int32), cache=caches)
    settle(caches)
    text = io.StringIO()
    mx.export_to_dot(text, logits)
    return Counter(_NODE.findall(text.getvalue()))


def _filled_with_zeros(cache: Any) -> bool:
    """Cut a cache off from the graph that would have filled it; False where its state cannot be set."""
    import mlx.core as mx
    from mlx.utils import tree_map

    def zeros(value: Any) -> Any:
        return mx.zeros(value.shape, value.dtype) if isinstance(value, mx.array) else value

    try:
        for part in getattr(cache, "caches", (cache,)):
            part.state = tree_map(zeros, part.state)
    except AttributeError:
        return False
    return True
