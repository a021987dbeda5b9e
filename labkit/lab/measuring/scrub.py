"""Scrub: takes paths, host and user names out of text that goes into a record."""

from __future__ import annotations

import getpass
import platform
import re
from pathlib import Path

# An absolute path of two parts or more; what matters of it is its last part.
_PATH = re.compile(r"(?<![\w.~/])/(?:[^\s/'\":,;()\[\]<>|]+/)+([^\s/'\":,;()\[\]<>|]*)")
MIN_NAME = 3


def scrub(text: str, *folders: Path) -> str:
    """`text` with the given folders and home as `~`, and any other absolute path as `.../its-last-part`.

    The host's and the user's name, where they stand as words of their own, become `host` and `user`.
    """
    for folder in sorted({str(f.resolve()) for f in (*folders, *_home())}, key=len, reverse=True):
        if folder != "/":
            text = text.replace(folder, "~")
    text = _PATH.sub(r".../\1", text)
    for name, word in ((platform.node(), "host"), (_user(), "user")):
        if len(name) >= MIN_NAME:
            text = re.sub(rf"\b{re.escape(name)}\b", word, text)
    return text


def _home() -> tuple[Path, ...]:
    """The user's home; none where neither the environment nor the system knows one."""
    try:
        return (Path.home(),)
    except RuntimeError:
        return ()


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
