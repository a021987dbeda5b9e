"""Refusal: every reason why a decision is not made, in one message; and what is wrong with given words."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from labkit.core.errors import DecisionRefused

# Categories of Unicode: control characters, and separators of lines and paragraphs.
_NOT_TEXT = ("Cc", "Zl", "Zp")


def refused(name: str, verb: str, reasons: Sequence[str], next_step: str | None = None) -> DecisionRefused:
    """One message with all reasons. verb: `promoted`, `deleted` or `renewed`."""
    listed = "\n".join(f"- {reason}" for reason in reasons)
    return DecisionRefused(f"{name} cannot be {verb}:\n{listed}", next_step=next_step)


def unsaid(why: str) -> Iterator[str]:
    """What is wrong with the reason that a person gave; nothing where it can be kept."""
    if not why.strip():
        yield "why: a reason in words is needed, got none"
    yield from unwritable("why", why.strip())


def unwritable(what: str, text: str) -> Iterator[str]:
    """What is wrong with a text that is to stand in a file of decisions."""
    if text != text.encode("utf-8", "replace").decode("utf-8"):
        yield f"{what}: text in Unicode is needed, got bytes of another encoding"
    strange = sorted({c for c in text if c not in "\n\t" and unicodedata.category(c) in _NOT_TEXT})
    if strange:
        got = ", ".join(map(ascii, strange))
        yield f"{what}: one line of text is needed, got the control characters {got}"
