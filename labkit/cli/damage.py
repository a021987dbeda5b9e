"""Damage: says on stderr which files among the records could not be read, so that none is left out unsaid."""

from __future__ import annotations

from collections.abc import Iterable

from labkit.cli.console import Console
from labkit.store.read import Damaged


def tell(damaged: Iterable[Damaged]) -> None:
    """One line per damaged record: its path below the lab and the reason."""
    console = Console(stderr=True, highlight=False)
    for bad in damaged:
        line = f"damaged record, left as it is and out of this: {bad.path}: {bad.reason}"
        console.print(line, style="yellow", markup=False, soft_wrap=True)
