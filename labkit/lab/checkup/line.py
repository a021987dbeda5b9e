"""Line: one thing that was looked at, how it is and what mends it. Never a host or user name."""

from __future__ import annotations

import getpass
import platform
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from labkit.core.errors import LabkitError
from labkit.model.wording import one_line

# problem: would stop or falsify a run. warning: worth mending. absent: this machine does not have it.
Level = Literal["ok", "warning", "problem", "absent"]
_PATH = re.compile(r"(?<![\w.~/])/[^\s'\":,;()\[\]<>|]+")
_LONGEST = 400


@dataclass(frozen=True, slots=True)
class Line:
    """mend: the one line that mends it, empty where there is nothing to mend."""

    section: str
    name: str
    level: Level
    text: str
    mend: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def checked(section: str, check: Callable[[], Iterable[Line]]) -> tuple[Line, ...]:
    """The lines of a check, and one more for what it raised: a check that fails is a finding itself."""
    lines: list[Line] = []
    try:
        lines.extend(check())
    except Exception as error:  # a broken machine may raise anything, and the other checks still count
        lines.append(failed(section, "check", error))
    return tuple(replace(line, text=private(line.text), mend=private(line.mend)) for line in lines)


def failed(section: str, name: str, error: BaseException, level: Level = "warning") -> Line:
    """A line for an error; of labkit's own with its next step."""
    if isinstance(error, LabkitError):
        got = "" if error.got is None else f"; got {one_line(error.got)}"
        return Line(section, name, level, one_line(error.need + got, _LONGEST), error.next_step or "")
    text = f"could not be checked: {type(error).__name__}: {one_line(error)}"
    return Line(section, name, level, text)


def private(text: str) -> str:
    """The text with home as `~`, and the names of user and host in other paths as `user` and `host`."""
    for folder in _homes():
        text = re.sub(rf"{re.escape(folder)}(?=$|[/\\s'\":,;)\]])", "~", text)
    return _PATH.sub(lambda found: _anonymous(found[0]), text)


def _homes() -> list[str]:
    try:
        home = Path.home()
        found = {str(home), str(home.resolve())}
    except (OSError, RuntimeError):
        return []
    return sorted(found - {"/"}, key=len, reverse=True)


def _anonymous(path: str) -> str:
    for name, word in ((platform.node(), "host"), (_user(), "user")):
        if name:
            path = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", word, path)
    return path


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
