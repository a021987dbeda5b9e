"""Check: whether everything in a lab is decided in time and what was decided still stands. Reads only.

Loads no model and no mlx, so that it can run before every commit.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from itertools import starmap
from pathlib import Path
from typing import Any, TypeVar

from labkit.core.decision import Recipe
from labkit.core.errors import RecipeInvalid
from labkit.lab.deciding.aftermath import overtaken, undated, unlisted
from labkit.lab.deciding.burial import torn_burial
from labkit.lab.deciding.evidence import evidence_problem
from labkit.lab.deciding.ledger import (
    MOST_DAYS,
    Ledger,
    days,
    kept_folder,
    lab_root,
    latest_expiry,
    open_folder,
    read_files,
    same_names,
)
from labkit.lab.deciding.notes import notes
from labkit.lab.deciding.promotion import torn_promotion
from labkit.lab.reading.runs import Known, Run, known
from labkit.store.decisions import read_burials, read_recipes, read_renewals, read_reopenings
from labkit.store.files import LINK
from labkit.store.read import one_line

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that must not stay. subject: a name, or a path below the lab root. next_step: its mending."""

    subject: str
    problem: str
    next_step: str

    def line(self) -> str:
        return f"{self.subject}: {self.problem}; next: {self.next_step}"


@dataclass(frozen=True, slots=True, repr=False)
class Checked:
    """The state of a lab. open: undecided experiments. notes: what is worth knowing and no fault."""

    open: int
    promoted: int
    deleted: int
    faults: tuple[Fault, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.faults

    def sentence(self) -> str:
        """The lab in a line."""
        experiments = "1 experiment" if self.open == 1 else f"{self.open} experiments"
        counts = f"{experiments} open, {self.promoted} promoted, {self.deleted} deleted"
        faults = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        return f"{counts}: {'all in order' if self.ok else faults}."

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}

    def __repr__(self) -> str:
        return f"<Checked {self.sentence()}>"

    def _repr_html_(self) -> str:
        lines = [
            *(
                f"<b>{html.escape(f.subject)}</b>: {html.escape(f.problem)}; next: "
                f"<code>{html.escape(f.next_step)}</code>"
                for f in self.faults
            )
        ]
        lines += map(html.escape, self.notes)
        items = "".join(f"<li>{line}</li>" for line in lines)
        return f"<p>{html.escape(self.sentence())}</p><ul>{items}</ul>"


def check(root: str | Path | None = None, *, today: date | None = None) -> Checked:
    """Every fault of a lab at once: overdue, broken or doubly named experiments, evidence that is not there.

    root: the lab; None takes the nearest folder upwards with experiments/. Raises ExperimentInvalid without
    that folder; a file of decisions that is broken is a fault among the others.
    """
    place, now = lab_root(root), today or datetime.now(UTC).date()
    faults: list[Fault] = []
    recipes = _or_fault(read_recipes, place, faults)
    burials = _or_fault(read_burials, place, faults)
    reopenings = _or_fault(read_reopenings, place, faults)
    # What was promoted is not known where its file is broken: then that alone is told.
    parts = (_open_faults, _name_faults) if faults else (_open_faults, _name_faults, _promoted_faults)
    ledger = Ledger(
        place,
        read_files(open_folder(place)),
        read_files(kept_folder(place)),
        recipes,
        _or_fault(read_renewals, place, faults),
        burials,
        reopenings,
    )
    held = known(place)
    for part in parts:
        faults += part(ledger, held.runs, now)
    after = (*undated(ledger, now), *unlisted(ledger, held.runs))
    faults += [*starmap(Fault, after), *_damaged(held)]
    deleted = {burial.name for burial in ledger.burials}
    return Checked(
        open=len(ledger.open_names()),
        promoted=sum(ledger.standing(recipe.name) is not None for recipe in ledger.recipes),
        deleted=len(deleted),
        faults=tuple(faults),
        notes=(*notes(ledger, now), *overtaken(ledger, held.runs)),
    )


def _or_fault(read: Callable[[Path], tuple[T, ...]], root: Path, faults: list[Fault]) -> tuple[T, ...]:
    try:
        return read(root)
    except RecipeInvalid as error:
        faults.append(Fault("experiments/", one_line(error), error.next_step or "mend the file"))
        return ()


def _open_faults(ledger: Ledger, _: tuple[Run, ...], today: date) -> Iterator[Fault]:
    for file in ledger.open:
        expiry, decided = ledger.expiry(file), ledger.decided(file.name)
        if expiry is None:
            step = f"mend it, or labkit delete {file.name} --why ..."
            yield Fault(ledger.shown(file.path), f"does not load: {file.problem}", step)
        elif not decided and expiry < today:
            late = (today - expiry).days
            renew = (
                "" if ledger.renewal(file.name) else f", or labkit renew {file.name} --until DATE --why ..."
            )
            step = f"labkit promote {file.name} --why ..., labkit delete {file.name} --why ...{renew}"
            yield Fault(file.name, f"expired {days(late)} ago, on {expiry}, and is undecided", step)
        elif not decided and expiry > latest_expiry(today):
            problem = f"expires on {expiry}; an experiment is to be decided within {MOST_DAYS} days"
            yield Fault(file.name, problem, f"give it an earlier date, by {latest_expiry(today)}")


def _name_faults(ledger: Ledger, _: tuple[Run, ...], __: date) -> Iterator[Fault]:
    for name, bearers in same_names(ledger.open):
        paths = ", ".join(ledger.shown(file.path) for file in bearers)
        yield Fault(name, f"more than one file bears this name: {paths}", "rename one of them")
    for name in sorted({file.name for file in ledger.open}):
        if ledger.decided(name):
            where = ", ".join(ledger.shown(file.path) for file in ledger.files(name))
            yield Fault(
                name, f"{where} is open under the name of {ledger.decided(name)}", _ending(ledger, name)
            )
    for recipe in ledger.recipes:
        if ledger.burial(recipe.name):
            problem = "is in the graveyard and still has a recipe"
            yield Fault(recipe.name, problem, f"labkit delete {recipe.name} --why ... ends it")
    for name in sorted({reopening.name for reopening in ledger.reopenings}):
        if ledger.torn_reopening(name):
            left = "its recipe" if ledger.recipe(name) else f"experiments/promoted/{name}.py"
            problem = f"was reopened, and {left} is still there"
            yield Fault(name, problem, f"labkit revalidate {name} ends it")


def _ending(ledger: Ledger, name: str) -> str:
    """What ends a decision that was torn, or gives another experiment its own name."""
    if torn_promotion(ledger, name):
        return f"labkit promote {name} --why ... moves the file, which ends the promotion"
    if torn_burial(ledger, name):
        return f"labkit delete {name} --why ... ends the deletion"
    return "give the experiment another name"


def _promoted_faults(ledger: Ledger, known: tuple[Run, ...], _: date) -> Iterator[Fault]:
    for recipe in ledger.recipes:
        if ledger.standing(recipe.name):
            yield from _recipe_faults(ledger, recipe, known)
    for file in ledger.kept:
        name = file.path.stem
        if ledger.standing(name) is None and not ledger.torn_reopening(name):
            step = f"labkit delete {name} --why ..., or move it back to experiments/"
            yield Fault(ledger.shown(file.path), "lies among the promoted ones without a recipe", step)


def _recipe_faults(ledger: Ledger, recipe: Recipe, known: tuple[Run, ...]) -> Iterator[Fault]:
    name, file = recipe.name, ledger.kept_file(recipe.name)
    withdraw = f"take it back from git, or labkit delete {name} --why ..."
    for item in recipe.evidence:
        problem = evidence_problem(ledger.root, item)
        if problem:
            yield Fault(name, f"its evidence {item.path} {problem}", withdraw)
    if file is None:
        if not ledger.files(name):
            yield Fault(name, f"its file experiments/promoted/{name}.py is missing", withdraw)
        return
    measured = {run.source_hash for run in known if run.run_id in {e.run_id for e in recipe.evidence}}
    if measured and file.source_hash not in measured:
        yield Fault(name, f"{ledger.shown(file.path)} was edited after its promotion", withdraw)
    elif file.experiment is None:
        yield Fault(name, f"{ledger.shown(file.path)} does not load: {file.problem}", withdraw)


def _damaged(held: Known) -> Iterator[Fault]:
    for file in held.damaged:
        if not file.path.startswith("results/"):
            continue  # a file of decisions, which is told already
        step = "take it back from git, or labkit store set-aside"
        if file.reason == LINK:
            step = "remove the link, or put the records themselves there"
        yield Fault(file.path, f"damaged record: {file.reason}", step)
