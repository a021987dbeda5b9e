"""The name of a KV scheme taken apart: its family, and what it states. Knows no model and reads no file.

`affine:<bits>[/g<group>][/s16][/start<n>]`, `mixed:<file>.json[@<hash>][/s16][/start<n>]`, a family alone, or
the label of a class of one's own.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from labkit.core.kv_file import split_file
from labkit.core.spec import Catalog, KVSpec
from labkit.plan.reason import Reason
from labkit.plan.values import shown

_OPTION = re.compile(r"(?P<group>g\d+)|(?P<s16>s16)|(?P<start>start(?:0|[1-9]\d*))")
# Longer numbers are no positions, and Python refuses to read some of them.
_MOST_DIGITS = 12


@dataclass(frozen=True, slots=True)
class KVName:
    """family: a key of the catalog. bits, group: as stated, or the family's own; None where it has none.

    path: of the file; pin: what its content must hash to, where the name says so.
    """

    family: str
    bits: int | None = None
    group: int | None = None
    short: bool = False
    start: int = 0
    path: str | None = None
    pin: str | None = None


def split_name(name: object, catalog: Catalog) -> KVName | Reason:
    """The parts of a name, or what is wrong with it."""
    if not isinstance(name, str):
        return Reason("kv", "the name of a KV scheme, or a class with a SPEC", shown(name), _forms(catalog))
    family, colon, argument = name.partition(":")
    spec = catalog.kv.get(name) or catalog.kv.get(family)
    if spec is None:
        hint = _close(name, catalog.kv_names())
        return Reason("kv", "a KV scheme of the catalog", shown(name), _forms(catalog), hint)
    if name in catalog.kv and not spec.file and not (spec.bits and name == spec.family):
        return KVName(name, *_first(spec))
    if spec.file:
        return _with_file(name, family, argument, spec)
    if not spec.bits:
        return Reason("kv", f"{family!r} without an argument", shown(name), (family,), f"kv={family!r}")
    return _with_bits(name, family, argument if colon else "", spec)


def _first(spec: KVSpec) -> tuple[int | None, int | None]:
    """What a class of one's own that stores codes has when it is passed as it is."""
    return (spec.bits[0] if spec.bits else None), spec.group_size


def _with_bits(name: str, family: str, argument: str, spec: KVSpec) -> KVName | Reason:
    bits, *options = argument.split("/")
    if bits not in map(str, spec.bits):
        need = f"one of the bits that {family!r} stores in its name"
        return Reason("kv", need, shown(name), spec.names(), _close(name, spec.names()))
    stated = _options(name, options, f"{family}:{bits}", spec)
    if isinstance(stated, Reason):
        return stated
    group = int(stated["group"][1:]) if "group" in stated else spec.group_size
    return KVName(family, int(bits), group, "s16" in stated, _start(stated))


def _with_file(name: str, family: str, argument: str, spec: KVSpec) -> KVName | Reason:
    found = split_file(argument)
    if found is None:
        step = f'kv=\'{family}:kv_config.json\', a list such as [{{"layer_idx": 0, "bits": 8}}]'
        return Reason("kv", "the path of a .json file in its name", shown(name), (spec.form(),), step)
    head = name.removesuffix(found.options)
    stated = _options(name, found.options.split("/")[1:], head, spec)
    if isinstance(stated, Reason):
        return stated
    return KVName(family, short="s16" in stated, start=_start(stated), path=found.path, pin=found.pin)


def _options(name: str, options: list[str], head: str, spec: KVSpec) -> Mapping[str, str] | Reason:
    """Options by what they set, each once and in the order of the family's form."""
    known = (*(("group",) if spec.groups and not spec.file else ()), *spec.options)
    written = {"group": [f"g{g}" for g in spec.groups], "s16": ["s16"], "start": ["start<n>"]}
    choices = tuple(choice for kind in known for choice in written[kind])
    stated: dict[str, str] = {}
    for option in options:
        kind = found.lastgroup if (found := _OPTION.fullmatch(option)) else None
        wrong = kind not in known or (kind == "group" and option not in written["group"])
        if wrong or len(option) > _MOST_DIGITS:
            hint = _close(option, [choice for choice in choices if choice != "start<n>"])
            return Reason(
                "kv", f"options that {spec.family!r} has", f"{shown(option)} in {shown(name)}", choices, hint
            )
        if kind in stated:
            return Reason(
                "kv", "an option once", f"{stated[kind]!r} and {option!r} in {shown(name)}", choices
            )
        stated[str(kind)] = option
    ordered = "/".join((head, *(stated[kind] for kind in known if kind in stated)))
    if ordered != name:
        return Reason("kv", f"options in the order of {spec.form()}", shown(name), (), f"kv={ordered!r}")
    return stated


def _start(stated: Mapping[str, str]) -> int:
    return int(stated.get("start", "start0").removeprefix("start"))


def _forms(catalog: Catalog) -> tuple[str, ...]:
    return tuple(spec.form() for spec in catalog.kv.values())


def _close(text: str, names: tuple[str, ...] | list[str]) -> str:
    close = difflib.get_close_matches(text, names, n=1)
    return f"did you mean {close[0]!r}?" if close else ""
