"""Reopening: a promoted experiment is open again, its recipe withdrawn and its file back in experiments/.

The entry in reopened.toml is written first, then the recipe goes, then the file moves: from the entry on the
planner picks the recipe no more, and what is torn is ended by the next call.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path

from labkit.core.decision import Decision, Recipe, Reopening
from labkit.engine.shield import uninterrupted
from labkit.lab.deciding.decided import Decided
from labkit.lab.deciding.git_files import is_tracked
from labkit.lab.deciding.ledger import Ledger, days, open_folder, read_ledger
from labkit.lab.deciding.moving import move_file, told
from labkit.lab.deciding.refusal import refused
from labkit.store.decisions import deciding
from labkit.store.recipes import remove_recipe
from labkit.store.reopenings import add_reopening

# What was opened again is to be decided within so many days, whatever its file says.
DAYS = 30


def reopen(root: Path, recipe: Recipe, *, why: str, evidence: Sequence[str], today: date) -> Decided:
    """Open a promoted experiment again. evidence: run ids of the records that do not carry its promotion.

    Raises DecisionRefused, and changes nothing, where that recipe is no longer there or another file is in
    the way; RecipeInvalid where a file of decisions is broken.
    """
    until = (today + timedelta(days=DAYS)).isoformat()
    withdrawn = tuple(item.run_id for item in recipe.evidence)
    reopening = Reopening(recipe.name, why, today.isoformat(), until, tuple(evidence), withdrawn)
    with deciding(root):
        ledger = read_ledger(root)
        reasons = [*_other_promotion(ledger, recipe), *in_the_way(ledger, recipe.name)]
        if reasons:
            raise refused(recipe.name, "reopened", reasons)
        with uninterrupted():
            add_reopening(root, reopening)
            return _end(ledger, reopening)


def end_reopening(root: Path, name: str) -> Decided | None:
    """End the reopening of a name that was torn; None where none was. Raises as `reopen` does."""
    with deciding(root):
        ledger = read_ledger(root)
        reopening = ledger.torn_reopening(name)
        if reopening is None:
            return None
        reasons = list(in_the_way(ledger, name))
        if reasons:
            raise refused(name, "reopened", reasons)
        with uninterrupted():
            return _end(ledger, reopening)


def in_the_way(ledger: Ledger, name: str) -> Iterator[str]:
    """What would keep the file of a promoted experiment from going back to experiments/."""
    kept, target = ledger.kept_file(name), _target(ledger, name)
    if kept and (target.exists() or target.is_symlink()) and _other_text(kept.path, target):
        yield f"file: a free place at {ledger.shown(target)} is needed, got a file; move that away"
    for file in ledger.files(name):
        if file.path != target:
            yield f"name: one of its own is needed for {ledger.shown(file.path)}, got that of a promoted one"


def _other_promotion(ledger: Ledger, recipe: Recipe) -> Iterator[str]:
    if ledger.standing(recipe.name) != recipe:
        got = ledger.decided(recipe.name) or "none"
        yield f"state: the promotion that was measured again is needed, got {got}"


def _other_text(path: Path, target: Path) -> bool:
    """Whether a file is another one; a power cut may leave one at both of its names."""
    return not target.is_file() or target.read_bytes() != path.read_bytes()


def _target(ledger: Ledger, name: str) -> Path:
    return open_folder(ledger.root) / f"{name}.py"


def _end(ledger: Ledger, reopening: Reopening) -> Decided:
    """Withdraw the recipe and move the file, as far as they are still there."""
    name, root = reopening.name, ledger.root
    recipe, kept, target = ledger.recipe(name), ledger.kept_file(name), _target(ledger, name)
    if recipe is not None and reopening.withdraws(recipe):
        remove_recipe(root, name)
    if kept is not None:
        left = f"{name} is open again, but its file could not be moved back to experiments/"
        with told(left, f"labkit revalidate {name}"):
            move_file(kept.path, target)
    outcome = f"until {reopening.until}"
    parts = (reopening.decided_at, reopening.why, outcome, reopening.evidence)
    return Decided(Decision("reopened", name, *parts), target, tuple(_lines(ledger, reopening)))


def _lines(ledger: Ledger, reopening: Reopening) -> Iterator[tuple[str, str]]:
    name, kept = reopening.name, ledger.kept_file(reopening.name)
    new = ledger.shown(_target(ledger, name))
    length = days((date.fromisoformat(reopening.until) - date.fromisoformat(reopening.decided_at)).days)
    added = ["experiments/reopened.toml", "experiments/promoted.toml", new]
    yield "why", " ".join(reopening.why.split())
    yield "recipe", 'withdrawn: Arm(..., recipe="auto") no longer picks it up'
    if kept is not None:
        old = ledger.shown(kept.path)
        added += [old] if is_tracked(kept.path) else []
        yield "file", f"{old} is now {new}"
    yield "expires", f"{reopening.until}, {length} after it was reopened"
    yield "next", f"labkit run {new}, then labkit promote {name} or labkit delete {name}"
    for run_id in reopening.evidence:
        added += map(ledger.shown, sorted((ledger.root / "results").glob(f"*/{run_id}.json")))
    yield "commit", f"git add -A {shlex.join(added)}"
