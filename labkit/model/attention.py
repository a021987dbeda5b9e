"""The attention seam: a cache of labkit's own may attend itself, in every architecture that calls mlx-lm's
attention function by its name. Knows modules and the SPEC of a cache; no schemes, no bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import mlx.core as mx

from labkit.model.tap_points import wrap_attention


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """What a cache class can do beside mlx-lm's; a class says it as `SPEC`, and one of mlx-lm's has none.

    attend: whether its `attend` takes the place of mlx-lm's attention function.
    shows_keys: whether its `show_keys` gives keys as numbers, so that attention over them can be recorded.
    """

    attend: bool = False
    shows_keys: bool = False


class Attending(Protocol):
    """A cache that attends itself."""

    SPEC: ClassVar[CacheSpec]

    def attend(
        self,
        queries: mx.array,
        keys: Any,
        values: Any,
        *,
        scale: float,
        mask: mx.array | str | None,
        sinks: mx.array | None,
    ) -> mx.array:
        """Attention `(B, heads, n, value_size)` of queries `(B, heads, n, key_size)`, which stay as they are.

        keys, values: what the cache's `update_and_fetch` gave. mask: None, "causal", boolean or to be added.
        sinks: `(heads,)` logits or None.
        """
        ...


def bind_attention(graph: Any) -> None:
    """Let caches with a SPEC attend in the modules that define this graph's classes.

    Once per module, however many graphs share it; under a tap too. A cache without a SPEC, or whose SPEC
    does not attend, gets the function that the module held, with the arguments as they came.
    """
    wrap_attention([graph], _Seam)


class _Seam:
    """Stands at the name of mlx-lm's attention function."""

    __slots__ = ("original",)

    def __init__(self, original: Callable[..., mx.array]) -> None:
        self.original = original

    def __call__(
        self,
        queries: mx.array,
        keys: Any,
        values: Any,
        cache: Any,
        scale: float,
        mask: mx.array | str | None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        spec: CacheSpec | None = getattr(type(cache), "SPEC", None)
        if spec is None or not spec.attend:
            return self.original(queries, keys, values, cache=cache, scale=scale, mask=mask, sinks=sinks)
        return cache.attend(queries, keys, values, scale=scale, mask=mask, sinks=sinks)
