"""Canonical JSON and the hashes made of it: the one way labkit turns data into an identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any


def canonical_json(data: Any) -> str:
    """Sorted keys, no spaces, UTF-8 kept, NaN and infinities refused (ValueError)."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """Data as JSON gives it back: tuples become lists, in dataclasses and mappings too."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def digest(data: Any, length: int = 16) -> str:
    """The first `length` hex digits of the SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()[:length]


def stated(instance: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults; those without a default always.

    A hash of it does not change when a field with a default is added later.
    """
    found = {}
    for field in fields(instance):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        value = getattr(instance, field.name)
        if default is MISSING or value != default:
            found[field.name] = stated(value) if is_dataclass(value) else value
    return found
