"""Primitives: what one decode step of a graph is made of, counted without running it."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

_NODE = re.compile(r'label ?= ?"([A-Za-z]\w*)"')


def count_primitives(graph: Any, make: Callable[[Any], list[Any]], settle: Callable[[list[Any]], None]) -> Counter[str]:
    """The primitives of a step over caches that hold two tokens, by mlx's name.

    graph: an mlx-lm model, whose weights may be lazy and are not read. make, settle: of the KV scheme.
    """
    import mlx.core as mx
    from mlx.utils import tree_map

    caches = make(graph)
    graph(mx.zeros((1, 2), mx.int32), cache=caches)
    settle(caches)
    for cache in caches:
        _fill(cache, lambda a: mx.zeros(a.shape, a.dtype) if isinstance(a, mx.array) else a, tree_map)
    logits = graph(mx.zeros((1, 1), mx.int32), cache=caches)
    settle(caches)
    text = io.StringIO()
    mx.export_to_dot(text, logits)
    return Counter(_NODE.findall(text.getvalue()))


def _fill(cache: Any, zeros: Callable[[Any], Any], tree_map: Callable[..., Any]) -> None:
    """Cut a cache off from the graph that would have filled it."""
    for part in getattr(cache, "caches", (cache,)):
        part.state = tree_map(zeros, part.state)
