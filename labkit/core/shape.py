"""Shape: whether data is of the types that a dataclass states. Knows no meaning, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def misfits(value: Any, hint: Any, where: str) -> Iterator[str]:
    """What does not have the type that it should, as `where: a str is needed, got int`; depth first.

    hint: a type as it stands in a dataclass. A whole number is a float too, a bool is neither.
    """
    if hint is Any:
        return
    if is_dataclass(hint) and isinstance(hint, type):
        yield from _fields(value, hint, where)
    elif _fits(value, hint):
        yield from _parts(value, hint, where)
    else:
        name = getattr(hint, "__name__", str(hint))
        yield f"{where}: {name} is needed, got {type(value).__name__}"


def _fields(value: Any, hint: type, where: str) -> Iterator[str]:
    if not isinstance(value, hint):
        yield f"{where}: {hint.__name__} is needed, got {type(value).__name__}"
        return
    for name, kind in _hints(hint).items():
        yield from misfits(getattr(value, name), kind, f"{where}.{name}")


def _parts(value: Any, hint: Any, where: str) -> Iterator[str]:
    """The misfits in a mapping or sequence, whose own type is right."""
    origin, kinds = get_origin(hint), get_args(hint)
    if origin in (dict, Mapping):
        for key, item in value.items():
            yield from misfits(key, kinds[0], f"a key of {where}")
            yield from misfits(item, kinds[1], f"{where}.{key}")
    elif origin in (tuple, list, Sequence):
        # A run has tens of thousands of samples: what is plainly right is passed over at once.
        odd = (i for i, item in enumerate(value) if type(item) is not kinds[0])
        for index in odd:
            kind = kinds[index] if origin is tuple and ... not in kinds else kinds[0]
            yield from misfits(value[index], kind, f"{where}[{index}]")


def _fits(value: Any, hint: Any) -> bool:
    """Whether the type is right, that of the parts of a mapping or sequence left open."""
    origin, kinds = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return any(not any(misfits(value, kind, "")) for kind in kinds)
    if origin is Literal:
        return value in kinds
    if origin in (float, int):
        return isinstance(value, (int, float) if origin is float else int) and not isinstance(value, bool)
    if origin is tuple:
        return isinstance(value, tuple) and (... in kinds or len(value) == len(kinds))
    if origin is Sequence:
        return isinstance(value, list | tuple)
    return isinstance(value, NoneType if origin is None else origin)


@cache
def _hints(hint: type) -> dict[str, Any]:
    return get_type_hints(hint)
