"""Docstrings of labkit for autodoc: they are plain text with `code` in backticks, and Sphinx reads reST.

Knows text, not objects. What would be markup by accident (`|log ratio|`, `*`, `name_`) is escaped.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_CODE = re.compile(r"(`[^`]+`)")
_SPECIAL = re.compile(r"([*|\\]|_(?=\W|$))")


def to_rest(lines: Sequence[str]) -> list[str]:
    """The lines of a docstring as reST: code as literals, tables as they are typed, the rest escaped."""
    found: list[str] = []
    for line, after in itertools.pairwise([*lines, ""]):
        table = line.lstrip().startswith("|")
        if table and not (found and found[-1].startswith("   ")):
            found += ["::", ""]
        found.append(f"   {line}" if table else _escape(line))
        if table and not after.lstrip().startswith("|"):
            found.append("")
    return _paragraphs(found)


def _escape(line: str) -> str:
    """One line: text between backticks is a literal, everything else means itself."""
    parts = _CODE.split(line)
    odd = (f"``{part[1:-1]}``" for part in parts[1::2])
    even = [_SPECIAL.sub(r"\\\1", part) for part in parts[::2]]
    joined = even[0]
    for literal, text in zip(odd, even[1:], strict=True):
        # A literal must end at a boundary; an escaped space is one that is not seen.
        joined += literal + ("\\ " if text[:1].isalnum() else "") + text
    return joined


def _paragraphs(lines: list[str]) -> list[str]:
    """Lines that reST would take for a nested block are joined to the paragraph that they go on with."""
    joined: list[str] = []
    for line in lines:
        goes_on = joined and joined[-1].strip() and line.startswith(" ") and not line.startswith("   ")
        joined.append(line.lstrip() if goes_on else line)
    return joined


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = to_rest(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}
