"""Run in a process of its own: load damaged directories and say how each was refused, as JSON."""

from __future__ import annotations

import hashlib
import json
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import labkit
from labkit.cli.models import show
from labkit.core.errors import LabkitError
from labkit.model import fingerprint as fingerprints

MIB = 1024
LIMIT_S = 60


def main(sound: str, *damaged: str) -> None:
    """Load and show each directory. The sound one comes first: what it takes is not the damage's."""
    # Files of a test are younger than the cache waits for; without this nothing would ever be written.
    defaults: Any = fingerprints.fingerprint.__kwdefaults__
    defaults["settled_ns"] = 0
    labkit.load(sound)
    sys.stdout, output = sys.stderr, sys.stdout
    show(sound)
    rows = []
    for path in damaged:
        sys.stderr.write(f"{path}\n")  # the last line names a case that does not end
        rows.append({"path": path, **_refused(Path(path))})
    output.write(json.dumps(rows))


def _refused(directory: Path) -> dict[str, Any]:
    before, peak = _content(directory), _peak_mib()
    loaded, load_s = _answer(labkit.load, directory)
    shown, show_s = _answer(lambda path: show(str(path)), directory)
    return {
        "load": loaded,
        "show": shown,
        "load_s": load_s,
        "show_s": show_s,
        "peak_mib": _peak_mib() - peak,
        "untouched": _content(directory) == before,
    }


def _answer(call: Callable[[Path], object], directory: Path) -> tuple[list[str], float]:
    """The error's class and text, and the seconds it took."""
    started = time.monotonic()
    signal.alarm(LIMIT_S)  # ends the process where a call waits for ever
    try:
        call(directory)
        answer = ["", "it was not refused"]
    except LabkitError as error:
        answer = [type(error).__name__, str(error)]
    except BaseException as error:
        answer = [f"not a LabkitError: {type(error).__name__}", str(error)]
    signal.alarm(0)
    return answer, time.monotonic() - started


def _content(directory: Path) -> dict[str, str]:
    files = (f for f in directory.rglob("*") if f.is_file())
    return {str(f): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB


if __name__ == "__main__":
    main(*sys.argv[1:])
