"""Moving: a file of a lab goes to another name, whole at one of the two at any moment. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labkit.core.errors import DecisionRefused
from labkit.store.durable import move_new, remove


def move_file(path: Path, target: Path) -> None:
    """Move a file to a free name, or end a move that a power cut left at both names.

    Raises FileExistsError, and moves nothing, where another file has the name; OSError where the disk fails.
    """
    if target.is_file() and not target.is_symlink() and target.read_bytes() == path.read_bytes():
        remove(path)
    else:
        move_new(path, target)


@contextmanager
def told(what: str, command: str) -> Iterator[None]:
    """Turn a disk's failure into a DecisionRefused. what: what is decided all the same, and what is not done.

    command: the one that ends it.
    """
    try:
        yield
    except OSError as error:
        raise DecisionRefused(
            what,
            got=error.strerror or str(error),
            next_step=f"mend permissions or free some space, then: {command}",
        ) from error
