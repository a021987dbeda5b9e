"""Set aside: moves damaged records out of sight, each with its reason beside it. Deletes nothing."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.core.errors import LabkitError
from labkit.store.damage import damage_of
from labkit.store.files import is_record, record_files, shown

FOLDER = Path("results") / "set-aside"


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
    reason is in `<name>.reason.txt`. Every file is looked at before one is moved. Raises SetAsideRefused
    for a healthy record, for a file that is no record and where a file cannot be moved.
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
        if shown(path.relative_to(root).as_posix()) in known:
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
        inside = Path(os.path.normpath(candidate.absolute()))
        if os.path.lexists(inside) and inside.is_relative_to(root.absolute()):
            relative = inside.relative_to(root.absolute())
            if is_record(relative.as_posix()):
                return root / relative
    raise SetAsideRefused(
        "a file among the records was needed: results/<machine>/<run id>.json",
        got=shown(str(path)),
        next_step="labkit store list names the damaged ones",
    )


def _moved(root: Path, path: Path, reason: str) -> SetAside:
    folder = root / FOLDER / path.parent.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        target = _move_to_free_name(path, folder)
        target.with_name(f"{target.name}.reason.txt").write_text(
            f"{_relative(root, path)}\n{shown(reason)}\n", encoding="utf-8"
        )
    except OSError as error:
        got = f"{_relative(root, path)}: {error.strerror or error}"
        raise SetAsideRefused(f"room and permission for {FOLDER} were needed", got=got) from error
    return SetAside(_relative(root, path), _relative(root, target), reason)


def _move_to_free_name(path: Path, folder: Path) -> Path:
    """Move a file to its own name in a folder, or to the first numbered one: `run.2.json`."""
    for number in itertools.count(1):
        target = folder / (path.name if number == 1 else f"{path.stem}.{number}{path.suffix}")
        reason = target.with_name(f"{target.name}.reason.txt")
        try:
            # The reason's name is claimed first, so that two commands never meet at one target.
            reason.open("x").close()
        except FileExistsError:
            continue
        if os.path.lexists(target):
            reason.unlink()
            continue
        try:
            path.rename(target)
        except OSError:
            reason.unlink()
            raise
        return target
    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))


def _relative(root: Path, path: Path) -> str:
    return shown(path.relative_to(root).as_posix())
