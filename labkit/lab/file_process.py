"""File process: loads experiment files for another process, which any file may hang, end or print into.

The first line in holds the paths to import from, each further one a file's path, all as JSON; for each file
it writes one line of JSON, the answer of `answer_for`. Ends when its input does, or with a file that hangs.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, BinaryIO

from labkit.core.errors import LabkitError
from labkit.lab.experiment import load_experiment
from labkit.store.read import one_line
from labkit.store.regular import read_bytes


def main(asked: BinaryIO, answers: BinaryIO, limit_s: float) -> None:
    """Answer until `asked` ends. limit_s: for one file, after which this process ends itself."""
    sys.path[:] = json.loads(asked.readline())
    for line in asked:
        # Who asks ends it earlier, unless it is gone.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        answer = answer_for(Path(json.loads(line)))
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        answers.write(json.dumps(answer).encode("ascii") + b"\n")
        answers.flush()


def answer_for(path: Path) -> dict[str, Any]:
    """The identity of a file's experiment and its source hash; or problem, where it does not load."""
    try:
        loaded = load_experiment(path)
        experiment = json.loads(json.dumps(loaded.experiment.identity()))
        return {"experiment": experiment, "source_hash": loaded.source_hash}
    except LabkitError as error:
        problem = one_line(error)
    except BaseException as error:  # Ctrl-C is for the process that asks: this one was raised by the file
        problem = f"{path.name} cannot be loaded; got {type(error).__name__}: {error}"
    return {"problem": " ".join(problem.split()), "source_hash": source_hash(path)}


def source_hash(path: Path) -> str:
    """SHA-256 of a file, first 16 digits; empty where it cannot be read."""
    try:
        return hashlib.sha256(read_bytes(path)).hexdigest()[:16]
    except OSError:
        return ""


if __name__ == "__main__":
    # Ctrl-C is for the process that asks, which then ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(int(sys.argv[1]), "rb") as questions, os.fdopen(int(sys.argv[2]), "wb") as out:
        main(questions, out, float(sys.argv[3]))
