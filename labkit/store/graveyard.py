"""Graveyard: `experiments/GRAVEYARD.md`, a Markdown table with one line a deleted experiment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from labkit.core.decision import Burial
from labkit.store.durable import replace_text
from labkit.store.toml_entries import broken, check_names, line_end, read_text

COLUMNS = ("experiment", "deleted", "promoted before", "outcome", "why", "claim", "evidence", "sources")
# Labs from before files were listed have a table without the last column; Markdown passes over one too many.
_FEWER = COLUMNS[:-1]
HEAD = """\
# Graveyard

Experiments that were deleted, and why. Their records stay in `results/`. Written by `labkit delete`.
"""
_NONE = "none"
# A bar that no backslash stands before, where every backslash of a text is doubled.
_BAR = re.compile(r"(?<!\\)((?:\\\\)*)\|")
_ESCAPED = re.compile(r"\\([\\|])|<br>|&lt;|&amp;")
_CONFLICT = ("<<<<<<<", "=======", ">>>>>>>")


def graveyard_path(root: Path | str) -> Path:
    """Where the deleted experiments of a lab are listed."""
    return Path(root) / "experiments" / "GRAVEYARD.md"


def read_burials(root: Path | str) -> tuple[Burial, ...]:
    """The deleted experiments of a lab, oldest first; none where there is no file.

    Lines of a person's own before and after the table are passed over. Raises RecipeInvalid, which names the
    line and the reason.
    """
    path = graveyard_path(root)
    text = read_text(path)
    found = tuple(_burials(path, text)) if text.strip() else ()
    check_names(path, "line", [burial.name for burial in found])
    return found


def add_burial(root: Path | str, burial: Burial) -> None:
    """Add a line below the last of the table; everything else in the file stays as it is."""
    path = graveyard_path(root)
    text = read_text(path)
    fresh = f"{HEAD}\n{_row(COLUMNS)}\n{_row(('---',) * len(COLUMNS))}\n"
    end = line_end(text)
    lines = (text if text.strip() else fresh).split("\n")
    last = max(number for number, line in enumerate(lines) if _is_row(line))
    lines[last] = lines[last].removesuffix("\r") + end + _row(_cells(burial)) + end.removesuffix("\n")
    replace_text(path, "\n".join(lines).rstrip("\r\n") + end)


def _burials(path: Path, text: str) -> Iterator[Burial]:
    heads = {_row(COLUMNS): (len(COLUMNS),), _row(_FEWER): (len(_FEWER), len(COLUMNS))}
    header = _row(COLUMNS)
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
    for number, line in lines:
        if line.startswith(_CONFLICT):
            raise broken(path, f"line {number}: two versions that were not merged")
    rows = [(number, line) for number, line in lines if _is_row(line)]
    if not rows:
        raise broken(path, f"the table is missing; its head is: {header}")
    first, last = rows[0][0], rows[-1][0]
    if rows[0][1] not in heads:
        raise broken(path, f"line {first}: the head of the table is needed: {header}")
    for number, line in lines[first:last]:
        if not _is_row(line):
            raise broken(path, f"line {number}: a row of the table is needed between its rows, got {line!r}")
        if not set(line) <= set("|-: "):
            yield _burial(path, number, line, heads[rows[0][1]])


def _burial(path: Path, number: int, line: str, sizes: tuple[int, ...]) -> Burial:
    cells = [_unescape(cell.strip()) for cell in _split(line)]
    if len(cells) not in sizes:
        raise broken(path, f"line {number}: {sizes[0]} cells are needed, got {len(cells)}")
    name, decided_at, withdrawn, outcome, why, claim, evidence, sources = (*cells, _NONE)[: len(COLUMNS)]
    try:
        date.fromisoformat(decided_at)
    except ValueError:
        got = f"got {decided_at!r}"
        raise broken(path, f"line {number}: a date such as 2027-02-01 is needed, {got}") from None
    if not name or withdrawn not in ("yes", "no"):
        raise broken(path, f"line {number}: a name, and yes or no in {COLUMNS[2]!r}, are needed")
    lists = (_listed(evidence), withdrawn == "yes", _listed(sources))
    return Burial(name, claim, outcome, why, decided_at, *lists)


def _listed(cell: str) -> tuple[str, ...]:
    return () if cell == _NONE else tuple(part.strip() for part in cell.split(",") if part.strip())


def _cells(burial: Burial) -> tuple[str, ...]:
    lists = (", ".join(listed) or _NONE for listed in (burial.evidence, burial.sources))
    withdrawn = "yes" if burial.withdrawn else "no"
    texts = (burial.outcome, burial.why, burial.claim, *lists)
    return (burial.name, burial.decided_at, withdrawn, *texts)


def _is_row(line: str) -> bool:
    """Whether a line belongs to the table; Markdown lets it be indented."""
    return line.lstrip().startswith("|")


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(_escape(cell) for cell in cells)} |"


def _split(line: str) -> list[str]:
    """The cells of a row, still escaped; a lost bar at its end is forgiven as Markdown does."""
    marked = _BAR.sub("\\1\n", line.strip())
    return marked.removeprefix("\n").removesuffix("\n").split("\n")


def _escape(text: str) -> str:
    """A text as one cell shows it: the Markdown of a bar, a backslash, a line's end and a tag's begin."""
    one = "\n".join(text.splitlines()).replace("&", "&amp;").replace("<", "&lt;")
    return one.replace("\\", "\\\\").replace("|", "\\|").replace("\n", "<br>")


def _unescape(cell: str) -> str:
    plain = {"<br>": "\n", "&lt;": "<", "&amp;": "&"}
    return _ESCAPED.sub(lambda found: found[1] or plain[found[0]], cell)
