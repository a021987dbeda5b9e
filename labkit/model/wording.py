"""Wording: text that came from a file or a library, made fit for one line of a message."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 240
_NAMES = 4


def one_line(text: object, longest: int = _LONGEST) -> str:
    """The text on one line: white space joined, what cannot be printed escaped, cut where it is long."""
    joined = " ".join(str(text).split())
    printable = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in joined[: longest + 1])
    return printable if len(printable) <= longest else f"{printable[:longest]}..."


def first_names(names: Iterable[str], count: int = _NAMES) -> str:
    """The first names of many, and how many more there are."""
    listed = list(names)
    shown = ", ".join(one_line(name, 80) for name in listed[:count])
    return shown + (f" and {len(listed) - count} more" if len(listed) > count else "")
