"""Damage: says on stderr which files among the records could not be read, so that none is left out unsaid."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from labkit.cli.console import Console
from labkit.store import query
from labkit.store.read import Damaged


def tell_damaged(root: Path) -> None:
    """Name the damaged records of a lab, if there are any."""
    tell(Damaged(row["path"], row["reason"]) for row in query.damaged(root).to_dict("records"))


def tell(damaged: Iterable[Damaged]) -> None:
    """One line per damaged record: its path below the lab and the reason."""
    console = Console(stderr=True, highlight=False)
    for bad in damaged:
        line = f"damaged record, left as it is and out of this: {bad.path}: {bad.reason}"
        console.print(line, style="yellow", markup=False, soft_wrap=True)
