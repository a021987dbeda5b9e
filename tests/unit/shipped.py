"""Shipped: the notebooks that the repository comes with. Others in notebooks/ are the reader's own."""

from __future__ import annotations

# By their numbers; a notebook of `labkit new experiment` has a name without underscores.
NOTEBOOKS = (
    "00_start_here.ipynb",
    "01_step_by_hand.ipynb",
    "02_paired_ab.ipynb",
    "04_frontier.ipynb",
    "05_promote.ipynb",
    "06_batching.ipynb",
)
