"""The content of a kv_config.json: bits and group size per layer, as mlx-optiq writes it and with more.

A list of `{"layer_idx": 0, "bits": 8, "group_size": 64}`, where group_size is 64 if it is not stated. In
place of bits an entry may have k_bits and v_bits. Knows of a model how many layers it has, and no more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from labkit.core.json_object import only_once
from labkit.core.kv_file import KVFile
from labkit.core.kv_setting import LayerKV
from labkit.core.spec import KVSpec
from labkit.plan.kv_name import KVName
from labkit.plan.reason import Reason, spans
from labkit.plan.values import is_whole, shown

_GROUP = 64
_ALONE = frozenset(("layer_idx", "bits"))
_APART = frozenset(("layer_idx", "k_bits", "v_bits"))
_FIELDS = '"layer_idx", "bits" (or "k_bits" and "v_bits") and "group_size"'
# A file with many wrong entries is wrong in the first ones.
_MOST_REASONS = 8


def read_layers(
    named: KVName, file: KVFile | None, depth: int, spec: KVSpec
) -> tuple[LayerKV | None, ...] | tuple[Reason, ...]:
    """One setting per cache, None for a layer that is not listed; or every reason against the file."""
    entries = _entries(named, file)
    if isinstance(entries, Reason):
        return (entries,)
    wrong = [f"entry {n}: {text}" for n, entry in enumerate(entries) for text in _problems(entry, spec)]
    if wrong:
        shown_ones = wrong[:_MOST_REASONS]
        more = (f"and {len(wrong) - len(shown_ones)} more",) if len(wrong) > len(shown_ones) else ()
        return tuple(
            Reason("kv", f"entries with {_FIELDS}", f"{text} in {named.path}")
            for text in (*shown_ones, *more)
        )
    indices = [entry["layer_idx"] for entry in entries]
    strange = tuple(_misplaced(indices, depth, named))
    if strange:
        return strange
    kept = {entry["layer_idx"]: _layer(entry, short=named.short) for entry in entries}
    return tuple(kept.get(layer) for layer in range(depth))


def _entries(named: KVName, file: KVFile | None) -> list[Any] | Reason:
    if file is None or file.problem:
        got = f"{named.path}: {'not read' if file is None else file.problem}"
        return Reason("kv", "a file of settings per layer", got, (), "a relative path begins in this folder")
    if named.pin is not None and named.pin != file.pin:
        step = "put the content back, or state the file anew without its hash"
        return Reason("kv", f"{named.path} as it was, {named.pin}", f"{file.pin}, another content", (), step)
    try:
        found = json.loads(
            file.text, object_pairs_hook=partial(only_once, what="field", where=" in an entry")
        )
    except (ValueError, RecursionError) as error:
        return Reason("kv", "JSON in the file of settings per layer", f"{named.path}: {error}")
    if not isinstance(found, list) or not found:
        got = f"{named.path}: {shown(found)}"
        return Reason("kv", "a list of at least one entry, each of one layer", got)
    return found


def _problems(entry: Any, spec: KVSpec) -> Iterator[str]:
    """What is wrong with one entry."""
    if not isinstance(entry, Mapping):
        yield f"{shown(entry)}, which is no object"
        return
    stated = frozenset(entry) - {"group_size"}
    if stated not in (_ALONE, _APART):
        yield f"the fields {', '.join(map(str, sorted(entry))) or 'none'}"
        return
    if not is_whole(entry["layer_idx"]) or entry["layer_idx"] < 0:
        yield f"layer_idx {shown(entry['layer_idx'])}, which is no whole number of at least 0"
    for name in sorted(stated - {"layer_idx"}):
        if not is_whole(entry[name]) or entry[name] not in spec.bits:
            yield f"{name} {shown(entry[name])}, which is none of {', '.join(map(str, spec.bits))}"
    group = entry.get("group_size", _GROUP)
    if not is_whole(group) or group not in spec.groups:
        groups = ", ".join(map(str, sorted(spec.groups)))
        yield f"group_size {shown(group)}, which is none of {groups}"


def _misplaced(indices: list[int], depth: int, named: KVName) -> Iterator[Reason]:
    twice = sorted({index for index in indices if indices.count(index) > 1})
    if twice:
        yield Reason("kv", "one entry a layer", f"several of layers {spans(twice)} in {named.path}")
    beyond = sorted({index for index in indices if index >= depth})
    if beyond:
        need = f"layers that the model has, 0 to {depth - 1}"
        yield Reason("kv", need, f"layers {spans(beyond)} in {named.path}")


def _layer(entry: Mapping[str, int], *, short: bool) -> LayerKV:
    bits = entry.get("bits", 0)
    group = entry.get("group_size", _GROUP)
    return LayerKV(entry.get("k_bits", bits), entry.get("v_bits", bits), group, short)
