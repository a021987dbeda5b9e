"""Decisions: what was decided of a lab's experiments, from its four files, and the lock to decide under.

The files are truth, and a person may edit them; `recipes`, `renewals`, `reopenings` and `graveyard` know one
each.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from labkit.core.decision import Burial, Decision, Recipe, Renewal, Reopening
from labkit.core.errors import DecisionRefused
from labkit.store.durable import sweep
from labkit.store.graveyard import read_burials
from labkit.store.lock import poll_for_lock
from labkit.store.recipes import read_recipes
from labkit.store.renewals import read_renewals
from labkit.store.reopenings import read_reopenings

__all__ = [
    "deciding",
    "read_burials",
    "read_decisions",
    "read_recipes",
    "read_renewals",
    "read_reopenings",
    "read_standing",
]

WAIT_S = 30.0


def read_decisions(root: Path) -> tuple[Decision, ...]:
    """Every decision of a lab, oldest first. Raises RecipeInvalid where one of the files is broken."""
    found = [
        *map(_promoted, read_recipes(root)),
        *map(_renewed, read_renewals(root)),
        *map(_reopened, read_reopenings(root)),
        *map(_deleted, read_burials(root)),
    ]
    return tuple(sorted(found, key=lambda decision: (decision.decided_at, decision.name, decision.kind)))


def read_standing(root: Path) -> tuple[Recipe, ...]:
    """The recipes that hold: a deletion or a reopening that was torn has left its own, which does not.

    Raises RecipeInvalid where one of the files is broken.
    """
    buried, reopenings = {burial.name for burial in read_burials(root)}, read_reopenings(root)
    return tuple(
        recipe
        for recipe in read_recipes(root)
        if recipe.name not in buried and not any(r.withdraws(recipe) for r in reopenings)
    )


@contextlib.contextmanager
def deciding(
    root: Path, wait_s: float = WAIT_S, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Hold the decisions of a lab: whoever else decides waits. Raises DecisionRefused after `wait_s` seconds.

    The lock is on the folder experiments/ itself, so that it leaves no file; any exit frees it. Without
    locks, as on some network file systems, nobody is waited for; each file is still replaced whole.
    """
    handle = os.open(Path(root) / "experiments", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _acquire(handle, wait_s, clock)
        for folder in ("experiments", "results/set-aside/experiments"):
            sweep(Path(root) / folder)  # what a killed decision left there would be committed with the next
        yield
    finally:
        os.close(handle)


def _acquire(handle: int, wait_s: float, clock: Callable[[], float]) -> None:
    if poll_for_lock(handle, wait_s, clock) == "busy":
        raise DecisionRefused(
            "the lock on experiments/ was needed to decide",
            got=f"another decision has held it for {wait_s:g} s",
            next_step="wait for that command to end, then repeat this one",
        )


def _promoted(recipe: Recipe) -> Decision:
    evidence = tuple(item.run_id for item in recipe.evidence)
    return Decision("promoted", recipe.name, recipe.decided_at, recipe.why, recipe.outcome, evidence)


def _renewed(renewal: Renewal) -> Decision:
    return Decision("renewed", renewal.name, renewal.decided_at, renewal.why, f"until {renewal.until}")


def _reopened(reopening: Reopening) -> Decision:
    outcome = f"until {reopening.until}"
    parts = (reopening.decided_at, reopening.why, outcome, reopening.evidence)
    return Decision("reopened", reopening.name, *parts)


def _deleted(burial: Burial) -> Decision:
    return Decision("deleted", burial.name, burial.decided_at, burial.why, burial.outcome, burial.evidence)
