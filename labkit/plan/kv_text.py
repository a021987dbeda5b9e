"""A KV setting in words, as `Plan.explain` prints it, and as the plain data that a plan hashes."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from labkit.core.canonical import plain
from labkit.core.kv_file import file_of
from labkit.core.kv_setting import KVSetting, LayerKV


def describe_kv(name: str, setting: KVSetting, otherwise: str) -> str:
    """The name and what it comes to: bits, groups and the start. otherwise: where it stores no codes."""
    if not setting.layers:
        return f"{name} ({otherwise})"
    counts = Counter(setting.layers)
    if len(counts) == 1:
        (kept,) = counts
        return f"{name} ({_layer(kept)}, from token {setting.start})"
    parts = [f"{n} x {_layer(kept)}" for kept, n in counts.items() if kept is not None]
    own = [f"{counts[None]} x the model's own"] if None in counts else []
    return f"{name} ({'; '.join([*parts, *own])}; from token {setting.start})"


# What the group size and the setting say.
_UNSAID = re.compile(r"/(?:g\d+|start0)(?=/|$)")


def kv_identity(name: str, setting: KVSetting) -> dict[str, Any]:
    """The fields of a plan's identity: of a file its content counts, wherever it lies.

    kv_setting is left out where name and group say all of it, so that such plans keep their hash; what is
    stated though it would be so without, as in `affine:8/g64`, makes no other plan.
    """
    distinct = set(setting.layers)
    kept = next(iter(distinct)) if len(distinct) == 1 else None
    named = {
        "kv": _UNSAID.sub("", name) if kept else name,
        "kv_group_size": None if kept is None else kept.group_size,
    }
    if file_of(name) is not None:
        return {**named, "kv": setting.family, "kv_setting": plain(setting)}
    even = not distinct or (kept is not None and not kept.is_split)
    return named if even and not setting.start else {**named, "kv_setting": plain(setting)}


def _layer(kept: LayerKV | None) -> str:
    if kept is None:
        return "the model's own"
    bits = f"{kept.k_bits} bits" if kept.k_bits == kept.v_bits else f"{kept.k_bits}/{kept.v_bits} bits"
    return f"{bits}, group {kept.group_size}" + (", scales of 16 bits" if kept.short else "")
