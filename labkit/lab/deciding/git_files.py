"""Git files: what git knows of single files of a lab. Changes nothing; without git, nothing is known."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def is_unchanged(path: Path) -> bool:
    """Whether the newest commit holds the file byte for byte, so that removing it loses nothing.

    Raises OSError where the file cannot be read.
    """
    shown = _git(path.parent, "show", f"HEAD:./{path.name}")
    return shown is not None and shown == path.read_bytes()


def is_tracked(path: Path) -> bool:
    """Whether git's index lists the file, there or not: only such a one can be added once it is gone."""
    return _git(path.parent, "ls-files", "--error-unmatch", "--", path.name) is not None


def _git(folder: Path, *arguments: str) -> bytes | None:
    """What git answers in a folder, None where it fails or is missing."""
    command = ["git", "-C", os.fspath(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
