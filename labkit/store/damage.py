"""Damage: what is wrong with one file among the records, as the index sees it. Moves and mends nothing."""

from __future__ import annotations

from pathlib import Path

from labkit.core.errors import RecordInvalid
from labkit.store.files import shown
from labkit.store.read import check_inside, one_line, read_record
from labkit.store.rows import record_rows


def damage_of(path: Path, root: Path) -> str | None:
    """Why the file is no record that the index can hold; None where it is one."""
    try:
        check_inside(path, root)
        record_rows(read_record(path), shown(path.relative_to(root).as_posix()))
    except RecordInvalid as error:
        return shown(one_line(error))
    return None
