"""Objections: every reason why a record cannot carry a promotion, and what has to be said where it can.

Knows one record, the file of its experiment and the frontier around it; decides and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from labkit.core.arm import Arm
from labkit.core.canonical import canonical_json
from labkit.core.metrics import METRICS
from labkit.core.records import AxisResult, Record
from labkit.frontier.dominance import judge
from labkit.frontier.points import Point, points
from labkit.lab.deciding.crashes import DROPPED, crashes, failures
from labkit.lab.deciding.floor_evidence import floor_problems
from labkit.lab.deciding.ledger import LabFile
from labkit.lab.deciding.recorded import differences, misshapen
from labkit.lab.deciding.rejudging import good_pairs
from labkit.lab.deciding.sturdiness import contradictions, noises, weaknesses
from labkit.lab.reading.runs import Run
from labkit.store import query
from labkit.store.read import read_record

_NOTEBOOK = "__main__."
# The least pairs that leave some to spare, and how many more to try where those there are did not.
_ENOUGH, _MORE = 12, 4


@dataclass(frozen=True, slots=True)
class Case:
    """A promotion that is asked for. known: the runs of its experiment, oldest first.

    code: hash of the code that is checked out. accepted: whether a trade-off is.
    """

    root: Path
    file: LabFile
    run: Run
    record: Record
    code: str
    accepted: bool
    known: tuple[Run, ...]


def objections(case: Case) -> Iterator[str]:
    """Every reason against, as `what: what is needed, got what; what to do`; none where nothing is."""
    broken = list(misshapen(case.record))
    if broken:
        yield from broken
        return
    for part in (_state, _outcome, _identity, _notebook, _text, _noise, _crashes, _floor, _newer, _dominated):
        yield from part(case)


def conditions(case: Case) -> Iterator[str]:
    """What has to be said with the promotion of a record that nothing speaks against."""
    failed = "; ".join(failures(case.record))
    if failed:
        yield f"{failed}: {DROPPED}"
    noise = "; ".join(noises(case.record))
    if noise:
        yield (
            f"measured on a machine that was not quiet ({noise}); "
            f"every verdict stays with any one of the {len(good_pairs(case.record))} pairs left out"
        )
    if case.record.outcome == "trade-off":
        yield f"a trade-off that was accepted: {lost(case.record)}"


def lost(record: Record) -> str:
    """What a trade-off gives up, as a phrase."""
    worse = (axis for axis in record.axes if axis.goal == "holds" and axis.verdict == "worse")
    return "; ".join(f"{METRICS[axis.metric].title} {_change(axis)}" for axis in worse)


def axis_line(axis: AxisResult) -> str:
    """A verdict on one line: title, verdict, change for the better with its interval, units and margin."""
    return f"{METRICS[axis.metric].title} {axis.verdict}: {_change(axis)}"


def _change(axis: AxisResult) -> str:
    unit = "x" if axis.scale == "ratio" else f" {METRICS[axis.metric].unit}"
    interval = "exact" if axis.low == axis.high else f"{axis.low:.3g} to {axis.high:.3g}"
    units = f"{axis.n} {axis.unit}{'' if axis.n == 1 else 's'}"
    return f"{axis.estimate:.3g}{unit} ({interval}, {units}; {axis.goal} {axis.margin:g})"


def _state(case: Case) -> Iterator[str]:
    if case.record.state == "partial":
        yield f"record: a complete one is needed, got {case.record.run_id}, which is partial; {_again(case)}"
    if case.record.experiment["name"] != case.file.name:
        got = f"{case.record.run_id}, which is of {case.record.experiment['name']}"
        yield f"record: one of {case.file.name} is needed, got {got}"


def _outcome(case: Case) -> Iterator[str]:
    record = case.record
    for axis in record.axes:
        if axis.verdict == "unresolved":
            why = f" ({'; '.join(axis.notes)})" if axis.notes else ""
            yield f"{axis.metric}: a verdict is needed, got unresolved{why}; labkit plan-run says the pairs"
    if record.outcome == "trade-off" and not case.accepted:
        yield f"outcome: a trade-off needs --accept-trade-off, since it loses {lost(record)}"
    elif record.outcome not in ("supported", "trade-off"):
        yield f"outcome: supported is needed, got {record.outcome}"


def _identity(case: Case) -> Iterator[str]:
    measured = case.record.provenance.get("code_hash")
    if measured != case.code:
        yield f"code: a record of the checked-out code {case.code} is needed, got {measured}; {_again(case)}"
    source = case.record.experiment.get("source_hash")
    if source and source != case.file.source_hash:
        needed = f"a record of the file as it is, {case.file.source_hash}, is needed"
        yield f"file: {needed}, got one of {source}, before it changed; {_again(case)}"
    elif source and case.file.experiment is not None:
        for other in differences(case.file.experiment, case.record):
            yield f"file: an experiment that states what was measured is needed, got {other}; {_again(case)}"
    # A record holds the arm that a recipe made; that one was asked for stands in the file alone.
    asked = case.file.experiment and case.file.experiment.candidate.recipe
    if asked or case.record.arm("candidate").arm.get("recipe"):
        yield "candidate: an arm that states what it runs is needed, got one with a recipe"


def _notebook(case: Case) -> Iterator[str]:
    if not case.record.experiment.get("source_hash"):
        got = "one that was run from a notebook"
        yield f"file: an experiment that lives in a file is needed, got {got}; {_again(case)}"
    for arm in case.record.arms:
        if _NOTEBOOK in canonical_json({"arm": {**arm.arm, "classes": []}, "plan": arm.plan}):
            yield f"{arm.role}: classes that live in a file are needed, got one of a notebook in its plan"
        for own in Arm.from_identity(arm.arm).classes:
            if not own.in_file:
                place = "a notebook" if own.module == "__main__" else "the experiment's own file"
                need = f"{arm.role}: classes that a recipe can import are needed, got {own.name} of {place}"
                yield f"{need}; move it to a module of a package, import it there, and {_again(case)}"


def _text(case: Case) -> Iterator[str]:
    score = case.record.experiment.get("score") or {}
    split, scored = score.get("split"), case.record.provenance.get("windows_hash") or case.record.quality
    if scored and split == "tune":
        yield "score: text of the split `promote` is needed, got `tune`, which was looked at while tuning"
    elif scored and split != "promote":
        yield f"score: text of the split `promote` is needed, got {split!r}"


def _noise(case: Case) -> Iterator[str]:
    """Visits that do not carry the verdicts, or might not on another day."""
    if case.record.state == "partial":
        return
    noise = "; ".join(noises(case.record))
    contradicted = [f"visits: {text}" for text in contradictions(case.record)]
    yield from contradicted
    # What contradicts itself cannot always be judged without a pair.
    weak = list(weaknesses(case.record)) if noise and not contradicted else []
    if noise and case.record.quiet.get("quiet") is True:
        yield f"quiet: true in the record, and its probes say {noise}"
    if weak:
        got = f"one that was not ({noise}), and {'; '.join(weak)}"
        pairs = max(_ENOUGH, len(good_pairs(case.record)) + _MORE)
        again = f"{_again(case)} --pairs {pairs} on a quiet machine (labkit doctor)"
        yield f"machine: a quiet one is needed, got {got}; {again}"


def _crashes(case: Case) -> Iterator[str]:
    for text in crashes(case.record):
        yield f"visits: one with hardly any that failed is needed, got {text}: {DROPPED}; {_again(case)}"


def _floor(case: Case) -> Iterator[str]:
    for text in floor_problems(case.record, case.root):
        yield f"floor: the A/A control that the record rests on is needed, got {text}; {_again(case)}"


def _newer(case: Case) -> Iterator[str]:
    """None is chosen over newer records that say otherwise."""
    for said in contradicted_by(case):
        yield f"record: one that no newer one contradicts is needed, got {said}"


def contradicted_by(case: Case) -> Iterator[str]:
    """Newer records of the same file, code and machine class that say otherwise, and what they say."""
    place = next((n for n, run in enumerate(case.known) if run.path == case.run.path), len(case.known))
    for run in case.known[place + 1 :]:
        alike = (run.state, run.machine, run.source_hash) == (
            "complete",
            case.run.machine,
            case.run.source_hash,
        )
        said = _said_otherwise(case, run) if alike else ""
        if said:
            yield f"{run.run_id}, which says {said}"


def _said_otherwise(case: Case, run: Run) -> str:
    """What a newer record of the same code says otherwise; empty where nothing or no pair measured."""
    record = read_record(case.root / run.path)
    if record.provenance.get("code_hash") != case.code or record.outcome == "failed":
        return ""
    mine = {axis.metric: axis.verdict for axis in case.record.axes}
    other = (
        f"{axis.metric} {axis.verdict}"
        for axis in record.axes
        if "unresolved" not in (axis.verdict, mine.get(axis.metric)) and axis.verdict != mine.get(axis.metric)
    )
    outcome = (str(record.outcome),) if record.outcome != case.record.outcome else ()
    return ", ".join((*outcome, *other))


def _dominated(case: Case) -> Iterator[str]:
    """A baseline that another arm dominates in any group, whatever reference and windows that has."""
    baseline, candidate = (_identity_of(case.record, role) for role in ("baseline", "candidate"))
    for standing in (standing for group in _groups(case) for standing in judge(group)):
        others = [p for p in standing.dominated_by if (p.arm_hash, p.plan_hash) != candidate]
        if (standing.point.arm_hash, standing.point.plan_hash) == baseline and others:
            got = ", ".join(f"{p.label} ({p.run_id})" for p in others)
            yield f"baseline: one that no arm dominates is needed, got one dominated by {got}"
            return


def _groups(case: Case) -> Iterator[tuple[Point, ...]]:
    """The points of the record's machine, family, work, code and packages, once for each set of windows."""
    frame = query.frontier_points(case.root)
    provenance = case.record.provenance
    wanted = {
        "machine": case.record.machine["slug"],
        "family": case.record.arm("baseline").artifact["family"],
        "workload_hash": case.record.workload_hash,
        "code_hash": provenance.get("code_hash"),
        "packages_hash": case.run.packages_hash,
    }
    own = frame.loc[(frame[list(wanted)] == list(wanted.values())).all(axis=1)]
    windows = own["windows_hash"].fillna("")
    for scored in sorted(set(windows)):
        yield points(own.loc[windows.isin(("", scored))])


def _identity_of(record: Record, role: str) -> tuple[str, str]:
    arm = record.arm(role)
    return arm.arm_hash, arm.plan_hash


def _again(case: Case) -> str:
    return f"labkit run experiments/{case.file.path.name}"
