"""Ledger: every experiment of a lab, open, promoted or deleted, and what was decided. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path, PurePath
from typing import Literal

from labkit.core.decision import Burial, Recipe, Renewal, Reopening
from labkit.core.errors import DecisionRefused, ExperimentInvalid
from labkit.lab.experiment import Experiment
from labkit.lab.file_loader import load_files
from labkit.store.decisions import read_burials, read_recipes, read_renewals, read_reopenings
from labkit.store.lab_folder import find_lab

State = Literal["open", "promoted", "deleted"]
# An experiment is to be decided within so many days: one that expires later would never be.
MOST_DAYS = 400
# What is said of an experiment between its two states.
TORN = "got one whose reopening was torn"


@dataclass(frozen=True, slots=True)
class LabFile:
    """An experiment file of a lab. name: the experiment's, or the file's where it does not load.

    experiment: None where it does not load, and problem then says why. source_hash: as in a record.
    """

    name: str
    path: Path
    source_hash: str
    experiment: Experiment | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Ledger:
    """open: the files in experiments/. kept: those in experiments/promoted/. root: the lab."""

    root: Path
    open: tuple[LabFile, ...]
    kept: tuple[LabFile, ...]
    recipes: tuple[Recipe, ...] = ()
    renewals: tuple[Renewal, ...] = ()
    burials: tuple[Burial, ...] = ()
    reopenings: tuple[Reopening, ...] = ()

    def files(self, name: str) -> tuple[LabFile, ...]:
        """The open files that bear a name; more than one is a fault of the lab."""
        return tuple(file for file in self.open if file.name == name)

    def kept_file(self, name: str) -> LabFile | None:
        """The file of a promoted experiment, which lies under its name."""
        return next((file for file in self.kept if file.path.stem == name), None)

    def recipe(self, name: str) -> Recipe | None:
        return next((recipe for recipe in self.recipes if recipe.name == name), None)

    def renewal(self, name: str) -> Renewal | None:
        return next((renewal for renewal in self.renewals if renewal.name == name), None)

    def burial(self, name: str) -> Burial | None:
        return next((burial for burial in self.burials if burial.name == name), None)

    def reopening(self, name: str) -> Reopening | None:
        """The last time that a name was opened again."""
        return next((r for r in reversed(self.reopenings) if r.name == name), None)

    def standing(self, name: str) -> Recipe | None:
        """The recipe of a name, where neither a deletion nor a reopening that was torn has left it."""
        recipe, reopening = self.recipe(name), self.reopening(name)
        withdrawn = recipe is not None and reopening is not None and reopening.withdraws(recipe)
        return None if withdrawn or self.burial(name) else recipe

    def torn_reopening(self, name: str) -> Reopening | None:
        """The reopening of a name that ended before its recipe or its file had left; None where none did."""
        left = self.recipe(name) or self.kept_file(name)
        return self.reopening(name) if left and not self.standing(name) and not self.burial(name) else None

    def decided(self, name: str) -> str:
        """What was decided of a name, as a phrase with date and reason; empty where nothing was."""
        burial, recipe = self.burial(name), self.standing(name)
        if burial is not None:
            return f"{name}, which was deleted on {burial.decided_at}: {burial.why}"
        if recipe is not None:
            return f"{name}, which was promoted on {recipe.decided_at}: {recipe.why}"
        return ""

    def expiry(self, file: LabFile) -> date | None:
        """The day by which an open experiment is to be decided, a renewal counted; None for a broken file."""
        if file.experiment is None:
            return None
        return expiry_of(file.experiment, self.renewals, self.reopenings)

    def open_names(self) -> tuple[str, ...]:
        """The names of the experiments that nothing was decided of, sorted."""
        torn = {file.path.stem for file in self.kept if self.torn_reopening(file.path.stem)}
        return tuple(sorted({file.name for file in self.open if not self.decided(file.name)} | torn))

    def the_file(self, name: str) -> LabFile:
        """The one open file of a name. Raises DecisionRefused where there is none or more than one."""
        found = self.files(name)
        if len(found) > 1:
            raise DecisionRefused(
                f"one experiment file named {name!r} was needed",
                got=", ".join(self.shown(file.path) for file in found),
                next_step="give one of them another name, or remove it",
            )
        if not found:
            raise self.unknown(name)
        return found[0]

    def unknown(self, name: str) -> DecisionRefused:
        """The error of a name that no experiment of the lab bears."""
        options = (*self.open_names(), *sorted(r.name for r in self.recipes if self.standing(r.name)))
        need = "the name of an experiment of this lab was needed"
        stem = PurePath(name).name.removesuffix(".py")
        near = {file.name for file in (*self.open, *self.kept) if stem in (file.path.stem, file.name)}
        step = f"did you mean {min(near)}?" if near else "labkit experiments --all"
        return DecisionRefused(need, got=repr(name), options=options, next_step=step)

    def shown(self, path: Path) -> str:
        """A path as it is written for a person: below the lab root."""
        return path.relative_to(self.root).as_posix()


def read_ledger(root: Path) -> Ledger:
    """The ledger of a lab. Raises ExperimentInvalid without experiments/, RecipeInvalid for a broken file."""
    return Ledger(
        root,
        read_files(open_folder(root)),
        read_files(kept_folder(root)),
        read_recipes(root),
        read_renewals(root),
        read_burials(root),
        read_reopenings(root),
    )


def lab_root(root: str | Path | None) -> Path:
    """The lab, None the nearest folder upwards with experiments/. Raises ExperimentInvalid without that."""
    place = find_lab() if root is None else Path(root)
    if not open_folder(place).is_dir():
        need = "experiment files are needed in the experiments folder of the lab"
        raise ExperimentInvalid(
            need, got=f"none below {place.resolve()}", next_step="give --root, or write one"
        )
    return place


def open_folder(root: Path) -> Path:
    """Where the open experiments of a lab lie."""
    return root / "experiments"


def kept_folder(root: Path) -> Path:
    """Where the files of promoted experiments lie."""
    return root / "experiments" / "promoted"


def expiry_of(
    experiment: Experiment, renewals: Sequence[Renewal], reopenings: Sequence[Reopening] = ()
) -> date:
    """The day by which an experiment is to be decided; a renewal never makes it earlier.

    Once it was opened again the date of that counts, and a renewal only where it came later.
    """
    name = experiment.name
    last = next((r for r in reversed(reopenings) if r.name == name), None)
    begins = experiment.expiry() if last is None else date.fromisoformat(last.until)
    since = "" if last is None else last.decided_at
    counted = (r for r in renewals if r.name == name and r.decided_at >= since)
    return max([begins, *(date.fromisoformat(r.until) for r in counted)])


def days(count: int) -> str:
    """A number of days in words: `1 day`, `2 days`."""
    return f"{count} day{'' if count == 1 else 's'}"


def latest_expiry(today: date) -> date:
    """The latest day that an experiment may expire on."""
    return today + timedelta(days=MOST_DAYS) if today < date.max - timedelta(days=MOST_DAYS) else date.max


def experiment_files(folder: Path) -> list[Path]:
    """The experiment files in a folder, by name; a leading underscore or dot hides one."""
    return sorted(p for p in folder.glob("*.py") if p.name[0] not in "_." and p.is_file())


def read_files(folder: Path) -> tuple[LabFile, ...]:
    """Every experiment file of a folder, also those that do not load, by a process of their own."""
    loaded = load_files(experiment_files(folder))
    return tuple(
        LabFile(
            f.experiment.name if f.experiment else f.path.stem, f.path, f.source_hash, f.experiment, f.problem
        )
        for f in loaded
    )


def same_names(files: Sequence[LabFile]) -> Iterator[tuple[str, tuple[LabFile, ...]]]:
    """Every name that more than one file bears, with those files."""
    for name in sorted({file.name for file in files}):
        bearers = tuple(file for file in files if file.name == name)
        if len(bearers) > 1:
            yield name, bearers
