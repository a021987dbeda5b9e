"""Canonical JSON and the hashes made of it: the one way labkit turns data into an identity."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(data: Any) -> str:
    """Sorted keys, no spaces, UTF-8 kept, NaN and infinities refused (ValueError)."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(data: Any, length: int = 16) -> str:
    """The first `length` hex digits of the SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()[:length]
