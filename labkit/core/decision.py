"""Decision: what became of an experiment, with the records it rests on; and the recipe of a promoted one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from labkit.core.arm import Arm, Workload


@dataclass(frozen=True, slots=True)
class Evidence:
    """A record that a decision rests on. path: below the lab root, POSIX form. sha256: of the file."""

    run_id: str
    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """An arm that was promoted for one machine class, model family and workload.

    name: the experiment's. decided_at: ISO date. machine: the slug of the machine class. arm: the promoted
    one, chosen by `Arm(..., recipe="auto")`. baseline: the path it was measured against, which stays what
    an arm without a recipe runs. fingerprint: of the promoted arm's artifact. outcome: `supported` or
    `trade-off`. axes: a line per verdict. conditions: what had to be said at the promotion, if anything.
    """

    name: str
    why: str
    decided_at: str
    machine: str
    family: str
    workload: Workload
    baseline: Arm
    arm: Arm
    fingerprint: str
    outcome: str
    axes: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Renewal:
    """The one time that an experiment was given longer. until, decided_at: ISO dates."""

    name: str
    until: str
    why: str
    decided_at: str


@dataclass(frozen=True, slots=True)
class Burial:
    """An experiment that was deleted. claim: its statement. outcome: of its newest record, or `not measured`.

    evidence: the run ids of its records; the records stay. withdrawn: whether it had been promoted.
    sources: the source hashes of its files, by which a torn deletion knows them again.
    """

    name: str
    claim: str
    outcome: str
    why: str
    decided_at: str
    evidence: tuple[str, ...] = ()
    withdrawn: bool = False
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reopening:
    """A promoted experiment that is open again, since a newer record does not carry its promotion.

    decided_at: ISO date. until: the one by which it is to be decided again. evidence: run ids of the records
    that show it. withdrawn: the run ids that its recipe rested on, by which that recipe is known again.
    """

    name: str
    why: str
    decided_at: str
    until: str
    evidence: tuple[str, ...]
    withdrawn: tuple[str, ...]

    def withdraws(self, recipe: Recipe) -> bool:
        """Whether this is the recipe it took back; one of a later promotion rests on other records."""
        return recipe.name == self.name and tuple(e.run_id for e in recipe.evidence) == self.withdrawn


DecisionKind = Literal["promoted", "deleted", "renewed", "reopened"]


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision as a row of the index: kind, the experiment's name, when, why and the run ids."""

    kind: DecisionKind
    name: str
    decided_at: str
    why: str
    outcome: str
    evidence: tuple[str, ...] = ()
