"""Fail where a notebook holds outputs or execution counts: `python tools/check_outputs.py NOTEBOOK...`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path


def with_outputs(paths: Iterable[Path]) -> Iterator[str]:
    """One line per notebook that was saved after a run, or that is none."""
    for path in paths:
        try:
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        except (ValueError, TypeError, KeyError):
            yield f"{path}: not a notebook"
            continue
        count = sum(bool(c.get("outputs")) or c.get("execution_count") is not None for c in cells)
        if count:
            yield f"{path}: {count} cells hold outputs"


def main(notebooks: list[str]) -> int:
    """Print what is wrong and how to mend it; 1 where anything is."""
    found = list(with_outputs(map(Path, notebooks)))
    for line in found:
        print(line)
    if found:
        print("mend: .venv/bin/jupyter nbconvert --clear-output --inplace NOTEBOOK")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
