"""Notes: what is worth knowing of a lab and is no fault. Reads only."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

from labkit.lab.deciding.ledger import Ledger, days, experiment_files, kept_folder, open_folder
from labkit.lab.measuring.unfinished import damaged, unfinished
from labkit.store.read import one_line

# An experiment that ends within so many days is told beforehand.
SOON_DAYS = 14
# Folders that tools make, in which nobody keeps an experiment.
_MADE = frozenset({"__pycache__", ".ipynb_checkpoints"})


def notes(ledger: Ledger, today: date) -> Iterator[str]:
    """Every note of a lab, a sentence each."""
    yield from _soon(ledger, today)
    for part in (_reopened, _renewals, _looked_past, _runs):
        yield from part(ledger)


def _soon(ledger: Ledger, today: date) -> Iterator[str]:
    for file in ledger.open:
        expiry = ledger.expiry(file)
        left = (expiry - today).days if expiry else -1
        if 0 <= left <= SOON_DAYS and not ledger.decided(file.name):
            yield f"{file.name} expires in {days(left)}, on {expiry}."


def _reopened(ledger: Ledger) -> Iterator[str]:
    for name in ledger.open_names():
        reopening = ledger.reopening(name)
        if reopening is not None:
            why = " ".join(reopening.why.split())
            yield f"{name} was promoted, and is open again since {reopening.decided_at}: {why}"


def _renewals(ledger: Ledger) -> Iterator[str]:
    """Entries whose name was mistyped, or whose file is gone without a decision."""
    names = {*(file.name for file in ledger.open), *ledger.open_names()}
    for file, verb, entries in (
        ("renewed.toml", "renews", ledger.renewals),
        ("reopened.toml", "reopens", ledger.reopenings),
    ):
        for name in dict.fromkeys(entry.name for entry in entries):
            if name not in names and not ledger.decided(name):
                yield f"{file} {verb} {name}, which no experiment of this lab is called."


def _looked_past(ledger: Ledger) -> Iterator[str]:
    """Files below experiments/ that never expire, since no command takes them for experiments."""
    folders = (open_folder(ledger.root), kept_folder(ledger.root))
    seen = {path for folder in folders for path in experiment_files(folder)}
    for path in sorted(open_folder(ledger.root).rglob("*.py")):
        if path not in seen and path.is_file() and _MADE.isdisjoint(path.relative_to(ledger.root).parts):
            nested = path.parent not in folders
            why = (
                "it lies in a folder of its own" if nested else "its name begins with a dot or an underscore"
            )
            yield f"{ledger.shown(path)} is looked past and never expires, since {why}."


def _runs(ledger: Ledger) -> Iterator[str]:
    for run in unfinished(ledger.root):
        gone = ledger.burial(run.name) or (run.file and run.place(ledger.root) is None)
        if gone or run.is_control:  # nobody can go on with it: a control is made anew
            continue
        yield f"{run.name} has an unfinished run, {run.progress()}; to go on with it: {run.command()}"
    for stem, why in damaged(ledger.root).items():
        step = "what came before that is kept by labkit store rebuild; the file is yours to keep or remove"
        journal = Path("results", "journals", f"{stem}.jsonl").as_posix()
        yield f"{journal} cannot be gone on with: {one_line(why)}; {step}"
