"""Vocabulary: the identity of a tokenizer's tokens, which two models must share to be compared by KL."""

from __future__ import annotations

from typing import Any

from labkit.core.canonical import digest


def vocabulary_hash(tokenizer: Any) -> str:
    """32 hex digits over every token and its id, added tokens included."""
    return digest(tokenizer.get_vocab(), 32)
