"""Set aside: moves damaged records out of sight, each with its reason beside it. Deletes nothing."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from labkit.core.errors import LabkitError
from labkit.store.damage import damage_of
from labkit.store.durable import move_new, remove, write_new
from labkit.store.files import RESULTS, is_record, leads_out, record_files, shown

FOLDER = Path(RESULTS) / "set-aside"


class SetAsideRefused(LabkitError):
    """A file that is no damaged record, or that cannot be moved."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """A damaged record that was moved. path, moved_to: below the lab root in POSIX form."""

    path: str
    moved_to: str
    reason: str


def set_aside(root: Path | str, paths: Sequence[Path | str] = ()) -> tuple[SetAside, ...]:
    """Move the damaged records at `paths`, or all of them, to `results/set-aside/<machine>/`.

    paths: below the lab root, below the current folder or absolute. A name that is taken gets a number; the
    reason is in `<name>.reason.txt`. Every file is looked at before one is moved. What a link leads to out
    of the lab is never moved, nor is the link. Raises SetAsideRefused for that where it is named, for a
    healthy record, for a file that is no record and where a file cannot be moved.
    """
    root = Path(root)
    if paths:
        found = [_named(root, Path(path)) for path in paths]
        return tuple(_moved(root, path, reason) for path, reason in dict(found).items())
    return tuple(_moved(root, path, reason) for path, reason in _all_damaged(root))


def _all_damaged(root: Path) -> Iterable[tuple[Path, str]]:
    from labkit.store.query import damaged

    known = set(damaged(root)["path"])
    for path in record_files(root):
        if shown(path.relative_to(root).as_posix()) in known and not leads_out(path, root):
            # The record itself has the last word: it may have been mended since.
            reason = damage_of(path, root)
            if reason is not None:
                yield path, reason


def _named(root: Path, path: Path) -> tuple[Path, str]:
    """Where a named record lies, and what is wrong with it."""
    inside = _inside(root, path)
    reason = damage_of(inside, root)
    if reason is None:
        raise SetAsideRefused(
            "a damaged record was needed: a healthy one stays where it is",
            got=_relative(root, inside),
            next_step="labkit store list names the damaged ones",
        )
    return inside, reason


def _inside(root: Path, path: Path) -> Path:
    for candidate in (root / path, path):
        relative = _resolved(root, candidate)
        if relative is not None and os.path.lexists(candidate) and is_record(relative.as_posix()):
            if leads_out(candidate, root):
                break
            return root / relative
    raise SetAsideRefused(
        "a file among the records was needed: results/<machine>/<run id>.json",
        got=shown(str(path)),
        next_step="labkit store list names the damaged ones; a link out of the lab is yours to remove",
    )


def _resolved(root: Path, path: Path) -> Path | None:
    """Where a name lies below the lab, the links of its folders followed; None where that is elsewhere."""
    place, home = path.parent.resolve() / path.name, (root / RESULTS).resolve()
    return RESULTS / place.relative_to(home) if place.is_relative_to(home) else None


def _moved(root: Path, path: Path, reason: str) -> SetAside:
    said = f"{_relative(root, path)}\n{shown(reason)}\n"
    try:
        target = _move_to_free_name(path, root / FOLDER / path.parent.name, said)
    except OSError as error:
        got = f"{_relative(root, path)}: {error.strerror or error}"
        raise SetAsideRefused(f"room and permission for {FOLDER} were needed", got=got) from error
    return SetAside(_relative(root, path), _relative(root, target), reason)


def _move_to_free_name(path: Path, folder: Path, said: str) -> Path:
    """Move a file to its own name in a folder, or to the first numbered one, `run.2.json`; `said` beside."""
    for number in itertools.count(1):
        target = folder / (path.name if number == 1 else f"{path.stem}.{number}{path.suffix}")
        reason = target.with_name(f"{target.name}.reason.txt")
        with suppress(FileExistsError):
            # The reason's name is claimed first, so that two commands never meet at one target.
            write_new(reason, said)
            try:
                move_new(path, target)
            except OSError:
                remove(reason)
                raise
            return target
    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))


def _relative(root: Path, path: Path) -> str:
    return shown(path.relative_to(root).as_posix())
