"""KVFile: what a file of KV settings per layer held when it was read, as data. Reads and judges nothing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

_DIGITS = 8


@dataclass(frozen=True, slots=True)
class KVFile:
    """text: its content. problem: why it could not be read, in words; text is empty then."""

    text: str = ""
    problem: str = ""

    @property
    def pin(self) -> str:
        """What a name holds after an @ to mean this content and no other: 8 digits of its SHA-256."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:_DIGITS]
