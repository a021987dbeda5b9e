"""Snapshot: caches and other nested state as plain data and named arrays, and back, bit for bit.

Knows arrays and the classes it is given; not files, sessions or schemes. Imports mlx where it meets arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from labkit.core.errors import SessionFailed

Arrays = dict[str, np.ndarray]
Classes = Mapping[str, type]


def cache_classes(caches: list[Any]) -> dict[str, type]:
    """Every cache class that a snapshot may name: mlx-lm's and its subclasses, and those of `caches`."""
    from mlx_lm.models import cache as upstream

    # Their common base is private there.
    base = next(kind for kind in upstream.KVCache.__mro__ if kind.__mro__[1:] == (object,))
    found, waiting = set[type](), [base, *{type(cache) for cache in caches}]
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found.add(kind)
            waiting += kind.__subclasses__()
    return {_name(kind): kind for kind in found}


def freeze(value: Any, classes: Classes, arrays: Arrays) -> Any:
    """`value` as JSON data; its arrays are added to `arrays`, an object of `classes` by its attributes.

    Raises SessionFailed for anything else, by the name of its class.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [freeze(item, classes, arrays) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[freeze(k, classes, arrays), freeze(v, classes, arrays)] for k, v in value.items()]}
    if _name(type(value)) in classes:
        return {"class": _name(type(value)), "fields": freeze(vars(value), classes, arrays)}
    return _freeze_array(value, arrays)


def thaw(data: Any, classes: Classes, arrays: Mapping[str, np.ndarray]) -> Any:
    """The value that `freeze` gave this data for. Raises SessionFailed for a class not in `classes`."""
    if not isinstance(data, dict):
        return data
    ((kind, content), *rest) = data.items()
    match kind:
        case "list":
            return [thaw(item, classes, arrays) for item in content]
        case "tuple":
            return tuple(thaw(item, classes, arrays) for item in content)
        case "dict":
            return {thaw(k, classes, arrays): thaw(v, classes, arrays) for k, v in content}
        case "array":
            return _thaw_array(arrays[content], dict(rest)["dtype"])
    if content not in classes:
        raise SessionFailed("a cache class that this labkit knows was needed", got=content)
    instance: Any = object.__new__(classes[content])
    vars(instance).update(thaw(data["fields"], classes, arrays))
    return instance


def _freeze_array(value: Any, arrays: Arrays) -> dict[str, str]:
    import mlx.core as mx

    if not isinstance(value, mx.array):
        raise SessionFailed(
            "state made of arrays, numbers and text was needed to save a session",
            got=f"{_name(type(value))}: {value!r:.60}",
            next_step="keep such an object out of the cache, or fork() in place of saving",
        )
    name = str(len(arrays))
    stored = value.view(mx.uint16) if value.dtype == mx.bfloat16 else value
    arrays[name] = np.array(stored, order="C")
    return {"array": name, "dtype": str(value.dtype).rpartition(".")[2]}


def _thaw_array(stored: np.ndarray, dtype: str) -> Any:
    import mlx.core as mx

    array = mx.array(stored)
    return array.view(mx.bfloat16) if dtype == "bfloat16" else array


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
