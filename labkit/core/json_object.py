"""JSON objects whose names are all different: of two of one name either could be meant. Reads nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def only_once(pairs: Iterable[tuple[str, Any]], *, what: str = "name", where: str = "") -> dict[str, Any]:
    """The object of these pairs; an `object_pairs_hook` of `json.loads`.

    what, where: of the message. Raises ValueError for a name that is there twice.
    """
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the {what} {name!r} twice{where}")
        found[name] = value
    return found
