"""Scheme: what every KV scheme gives the engine. Knows caches, not requests or methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from labkit.core.errors import SessionFailed
from labkit.core.kv_setting import KVSetting, plain_name
from labkit.core.spec import KVSpec, LayerKind


class Scheme(Protocol):
    """The bytes of a row. An instance is made per plan, from what its name asked for."""

    SPEC: ClassVar[KVSpec]

    def __init__(self, setting: KVSetting) -> None: ...

    def make(self, graph: Any) -> list[Any]:
        """Fresh caches for one row, one per layer of an mlx-lm model."""
        ...

    def settle(self, caches: list[Any]) -> None:
        """Bring caches to the scheme's form, in place; the method calls it after every model call."""
        ...


def settles_at(scheme: Scheme) -> int | None:
    """Positions at which `settle` has changed a cache for the last time: the scheme's own `settles_at`.

    None, where a scheme says nothing: it may change any cache after any model call.
    """
    return getattr(scheme, "settles_at", None)


def describe(cache: Any) -> str:
    """The class of a cache and, where it is quantized, its bits and group size.

    A class of one's own may say more: its `layout` is taken as it stands.
    """
    own: str | None = getattr(cache, "layout", None)
    if own is not None:
        return own
    bits = getattr(cache, "bits", None)
    name = type(cache).__name__
    return name if bits is None else f"{name}(bits={bits}, group_size={cache.group_size})"


def kv_bytes(caches: list[Any]) -> int:
    """Bytes allocated by the caches of a row."""
    return sum(cache.nbytes for cache in caches)


def is_early(caches: list[Any], setting: KVSetting) -> bool:
    """Whether a row holds fewer positions than its scheme starts at."""
    quantized = (c for layer, c in enumerate(caches) if setting.start and setting.layer(layer) is not None)
    return any(cache.offset < setting.start for cache in quantized)


def check_layout(caches: list[Any], layout: tuple[str | None, ...], kv: str, *, early: bool = False) -> None:
    """Raise SessionFailed unless every cache is what the plan said (None: the model's own class).

    early: whether the row holds fewer positions than its scheme starts at, so that no cache is quantized yet.
    """
    check_names([describe(cache) for cache in caches], layout, kv, early=early)


def check_names(
    found: Sequence[str], layout: tuple[str | None, ...], kv: str, *, early: bool = False
) -> None:
    """`check_layout` of caches that are elsewhere, by what `describe` says of them."""
    wants = [plain_name(want) if early and want is not None else want for want in layout]
    wrong = [
        (layer, want, got)
        for layer, (want, got) in enumerate(zip(wants, found, strict=True))
        if want is not None and want != got
    ]
    if wrong:
        layer, want, got = wrong[0]
        need = f"caches as planned for kv={kv}: layer {layer} should hold {want}"
        raise SessionFailed(need, got=f"{got} ({len(wrong)} of {len(found)} layers differ)")


def why_not_trim(
    caches: list[Any],
    kinds: Sequence[LayerKind],
    length: int,
    window: int | None,
    *,
    left: int | None = None,
    start: int = 0,
) -> str | None:
    """Why the newest of `length` positions cannot be taken off these caches; None where they can.

    A sliding layer gives positions back only while it has dropped none, whatever its class says. left: the
    positions that would stay. start: those from which on the caches are quantized, which is not undone.
    """
    if left is not None and left < start <= length:
        return f"the caches were quantized at {start} positions, and only {left} would stay"
    if len(caches) != len(kinds):
        return f"the model has {len(caches)} caches and its profile lists {len(kinds)} layers"
    for layer, (cache, kind) in enumerate(zip(caches, kinds, strict=True)):
        if kind == "recurrent":
            return f"layer {layer} is recurrent and keeps one state, not one per token"
        if kind == "sliding" and window is not None and length >= window:
            return f"layer {layer} slides, and {length} tokens have passed its window of {window}"
        if not cache.is_trimmable():
            return f"{type(cache).__name__} of layer {layer} gives no positions back"
    return None
