"""Evidence: whether a record that a promotion rests on is still what it was. Reads only."""

from __future__ import annotations

import hashlib
from pathlib import Path

from labkit.core.decision import Evidence


def evidence_problem(root: Path, item: Evidence) -> str:
    """What is wrong with the file of a record, as a phrase after its path; empty where nothing is."""
    path = root / item.path
    try:
        inside = path.resolve().is_relative_to((root / "results").resolve())
        found = hashlib.sha256(path.read_bytes()).hexdigest() if inside else ""
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if not inside:
        return "is no record of this lab"
    return "" if found == item.sha256 else "is not what the promotion rested on: its SHA-256 differs"
