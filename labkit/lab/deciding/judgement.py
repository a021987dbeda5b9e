"""Judgement: the outcome that the decision procedure gives an experiment, and the next command.

Changes nothing.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from labkit.bench.power import MAX_PAIRS
from labkit.bench.statistics import MIN_UNITS
from labkit.core.errors import DecisionRefused
from labkit.core.records import Record
from labkit.lab.deciding.choose_run import choose_run
from labkit.lab.deciding.floor_evidence import floor_problems
from labkit.lab.deciding.ledger import LabFile, Ledger, lab_root, read_ledger
from labkit.lab.deciding.objections import Case, contradicted_by
from labkit.lab.deciding.procedure import Looked, Outcome, Ruling, Situation, rule_on
from labkit.lab.deciding.rejudging import good_pairs
from labkit.lab.deciding.situation import Found, SuiteEvidence, look
from labkit.lab.measuring.provenance import code_hash, machine_class
from labkit.lab.reading.runs import runs_of
from labkit.model.backend import prepare
from labkit.store.read import read_record

# The four steps in order, with the parts of the situation that each of them finds.
_STEPS = {
    "record": ("record", "machine", "visits"),
    "parity": ("parity",),
    "speed and size": ("gain", "loss", "unnamed"),
    "KL screen": ("kl",),
    "frozen suite": ("suite",),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What a step of the procedure found. found: the word that a rule sees. detail: what it rests on."""

    step: str
    part: str
    found: str
    detail: str


@dataclass(frozen=True, slots=True, repr=False)
class Judgement:
    """An outcome with the rule that fired, and how it was come to. state: of the experiment now.

    trail: every rule looked at, in order. next_step: the command that acts on it. otherwise: what the outcome
    would be, and by which rule, if the same had been measured of what is here now; empty where it was.
    """

    name: str
    state: str
    record: str
    outcome: Outcome
    rule: str
    why: str
    next_step: str
    findings: tuple[Finding, ...]
    trail: tuple[Looked, ...]
    otherwise: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data; what a rule saw is a table."""
        return {**asdict(self), "trail": [{**asdict(t), "saw": dict(t.saw)} for t in self.trail]}

    def __repr__(self) -> str:
        return f"<Judgement {self.name}: {self.outcome} ({self.rule})>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{f.step}</td><td>{f.part}: {f.found}</td><td>{html.escape(f.detail)}</td></tr>"
            for f in self.findings
        )
        head = f"<b>{html.escape(self.name)}</b>: {self.outcome}: {self.rule}, since {html.escape(self.why)}"
        return f"<p>{head}<br>next: <code>{html.escape(self.next_step)}</code></p><table>{rows}</table>"


def judge(
    name: str,
    *,
    root: str | Path | None = None,
    record: str | None = None,
    suite: SuiteEvidence | None = None,
    machine: str | None = None,
    code: str | None = None,
) -> Judgement:
    """Apply the decision procedure to an open or promoted experiment; nothing is decided or written.

    root: the lab; None takes the nearest folder upwards with experiments/. record: a run id; None takes the
    newest complete record of this machine class. suite: what the frozen suite found, None where it was not
    run. machine, code: the slug of this machine class and the hash of the checked-out code, None for the real
    ones. Raises DecisionRefused where the experiment or a record of it is not there.
    """
    place, here = lab_root(root), cache(lambda: machine or machine_class(prepare())["slug"])
    ledger = read_ledger(place)
    file = _file(ledger, name)
    shown = ledger.shown(file.path).removeprefix("experiments/")
    known = runs_of(place, name)
    run = choose_run(known, record, here, shown)
    case = Case(place, file, run, read_record(place / run.path), code or code_hash(), True, known)
    found = look(case.record, suite, outdated=_outdated(case), contradicted="; ".join(_contradicted(case)))
    return _judgement(ledger, case, found, rule_on(found.situation))


def _file(ledger: Ledger, name: str) -> LabFile:
    """The file of an open or promoted experiment, wherever it lies."""
    if ledger.burial(name):
        got = ledger.decided(name)
        raise DecisionRefused("an open or promoted experiment was needed", got=got)
    kept = ledger.kept_file(name)
    return kept if kept is not None and not ledger.files(name) else ledger.the_file(name)


def _contradicted(case: Case) -> Iterator[str]:
    """What else in the lab says otherwise: a newer record, or the control that the record rests on."""
    yield from contradicted_by(case)
    yield from floor_problems(case.record, case.root)


def _outdated(case: Case) -> str:
    """What was measured and is no longer here, in words."""
    measured, source = case.record.provenance.get("code_hash"), case.record.experiment.get("source_hash")
    parts = [f"code {measured} was measured, and {case.code} is checked out"] if measured != case.code else []
    if source != case.file.source_hash:
        parts.append("the file was changed since" if source else "a notebook was measured, not the file")
    return "; ".join(parts)


def _judgement(ledger: Ledger, case: Case, found: Found, ruling: Ruling) -> Judgement:
    name, rule = case.file.name, ruling.rule
    words = {part: str(getattr(found.situation, part)) for part in found.details}
    findings = (
        Finding(step, part, words[part], found.details[part])
        for step, parts in _STEPS.items()
        for part in parts
    )
    return Judgement(
        name=name,
        state="promoted" if ledger.standing(name) else "open",
        record=case.record.run_id,
        outcome=rule.outcome,
        rule=rule.name,
        why=rule.why,
        next_step=_next(ledger, case, ruling),
        findings=tuple(findings),
        trail=ruling.trail,
        otherwise=_otherwise(found.situation),
    )


def _otherwise(situation: Situation) -> str:
    if situation.record != "outdated":
        return ""
    ruling = rule_on(replace(situation, record="whole"))
    return f"{ruling.outcome}: {ruling.rule.name}"


def _next(ledger: Ledger, case: Case, ruling: Ruling) -> str:
    """The rule's own step, but where the experiment is promoted already."""
    name, file = case.file.name, ledger.shown(case.file.path)
    recipe = ledger.standing(name)
    if recipe is not None and ruling.outcome != "delete":
        return f"it is promoted as {recipe.outcome}; labkit revalidate {name} measures it again"
    return ruling.rule.step.format(name=name, file=file, pairs=_more_pairs(case.record))


def _more_pairs(record: Record) -> int:
    """Twice the pairs: an interval that is narrower by the square root of two. `plan-run` plans them."""
    return min(MAX_PAIRS, 2 * max(MIN_UNITS, len(good_pairs(record))))
