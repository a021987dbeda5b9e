"""Journal entries: append-only progress of a long work, so that a killed one can go on.

Knows neither files nor what an entry means: `store` keeps them on disk, and who works says what it appends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that was done. kind: what it is, such as `visit`; data: plain JSON values."""

    kind: str
    data: Mapping[str, Any]
