"""Fail where a file under a folder is over 500 lines or a function over 40: `check_size.py FOLDER...`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

FILE_LINES = 500
FUNCTION_LINES = 40


def oversized(folder: Path) -> Iterator[str]:
    """One line for each file and function that is too long."""
    for path in sorted(folder.rglob("*.py")):
        source = path.read_text()
        if (lines := len(source.splitlines())) > FILE_LINES:
            yield f"{path}: {lines} lines, at most {FILE_LINES}: one noun per file"
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    yield f"{path}:{node.lineno}: {node.name} has {lines} lines, at most {FUNCTION_LINES}"


def main(folders: Sequence[str]) -> int:
    """Print what is too long and return 1 where there is any."""
    found = [line for folder in folders for line in oversized(Path(folder))]
    for line in found:
        print(line)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
