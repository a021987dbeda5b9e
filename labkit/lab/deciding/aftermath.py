"""Aftermath: what came after a decision and does not go with it. Reads only, and decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date

from labkit.lab.deciding.ledger import Ledger, latest_expiry
from labkit.lab.deciding.running import journals_of, running
from labkit.lab.reading.runs import Run
from labkit.store.toml_entries import MEND


def undated(ledger: Ledger, today: date) -> Iterator[tuple[str, str, str]]:
    """Decisions made further ahead than a clock that was set back explains: subject, problem, next step."""
    for entry in (*ledger.recipes, *ledger.renewals, *ledger.reopenings, *ledger.burials):
        if date.fromisoformat(entry.decided_at) > latest_expiry(today):
            yield entry.name, f"was decided on {entry.decided_at}, which is to come", MEND


def unlisted(ledger: Ledger, known: Sequence[Run]) -> Iterator[tuple[str, str, str]]:
    """Records and journals of deleted experiments that no line lists: subject, problem, next step."""
    held = running(ledger.root)
    for burial in ledger.burials:
        for run in known:
            if run.experiment == burial.name and run.run_id not in burial.evidence:
                step = f"add {run.run_id} to the evidence in its line of experiments/GRAVEYARD.md"
                yield burial.name, f"was deleted, and its line does not list {run.path}", step
        for path in () if burial.name in held else journals_of(ledger.root, burial.name):
            step = "see what it holds (the next labkit run seals it into a record), then move it away"
            yield burial.name, f"was deleted, and {ledger.shown(path)} is still there", step


def overtaken(ledger: Ledger, known: Sequence[Run]) -> Iterator[str]:
    """Newer complete records on a recipe's machine class that do not say what its promotion rested on."""
    for recipe in filter(lambda r: ledger.standing(r.name), ledger.recipes):
        evidence = {item.path for item in recipe.evidence}
        mine = [run for run in known if run.experiment == recipe.name and run.machine == recipe.machine]
        last = max((number for number, run in enumerate(mine) if run.path in evidence), default=len(mine))
        for run in mine[last + 1 :]:
            if run.state == "complete" and run.outcome not in (recipe.outcome, "failed"):
                told = f"{recipe.name} is promoted as {recipe.outcome}"
                yield f"{told}, and the newer {run.path} says {run.outcome}."
