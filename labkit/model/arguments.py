"""Arguments: whether a config has the types that an architecture's own arguments declare.

mlx-lm's arguments are dataclasses that check nothing: a text where a number belongs would fail in a step.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from labkit.core.errors import ModelUnavailable
from labkit.model.wording import one_line

_NUMBERS = (int, float)
# What JSON gives for a declared type. Some architectures declare a whole number and read a list of them, one
# for each layer; texts are left to mlx-lm, which looks them up.
_ACCEPTED: Mapping[type, tuple[type, ...]] = {
    int: (*_NUMBERS, list),
    float: _NUMBERS,
    bool: _NUMBERS,
    dict: (dict,),
    # A text stands for a list of letters: Nemotron-H's pattern of layers.
    list: (list, str),
    tuple: (list,),
}


def check_arguments(config: Mapping[str, Any], arguments_class: type) -> None:
    """Raise ModelUnavailable for the first entry whose type or value cannot be meant.

    An absent entry is mlx-lm's to judge; so is a type that its arguments do not declare plainly.
    """
    if not is_dataclass(arguments_class):
        return
    hints = get_type_hints(arguments_class)
    for field in fields(arguments_class):
        if field.name not in config:
            continue
        value, hint = config[field.name], hints[field.name]
        required = field.default is MISSING and field.default_factory is MISSING
        if value is None and (not required or _fits(None, hint)):
            continue
        if not _fits(value, hint) or (isinstance(value, float) and math.isnan(value)):
            raise ModelUnavailable(
                f"{field.name} in config.json must be of type {_name(hint)}",
                got=one_line(repr(value), 80),
                next_step="fetch the model again, or correct config.json",
            )


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    kind = origin or hint
    if kind is type(None):
        return value is None
    accepted = _ACCEPTED.get(kind) if isinstance(kind, type) else None
    return isinstance(value, accepted) if accepted else True


def _name(hint: Any) -> str:
    return (
        getattr(hint, "__name__", str(hint)) if get_origin(hint) is None else str(hint).replace("typing.", "")
    )
