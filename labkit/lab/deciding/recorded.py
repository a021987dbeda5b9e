"""Recorded: whether a record has the shape that a decision reads, and is of the experiment in a file.

Knows fields and their types; not whether its verdicts follow from its numbers (`sturdiness`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from labkit.bench.pairs import ROLES
from labkit.bench.quiet import Probe
from labkit.bench.verdict import ALPHA
from labkit.core.arm import Arm, Workload
from labkit.core.canonical import canonical_json, plain
from labkit.core.hypothesis import Hypothesis
from labkit.core.metrics import METRICS
from labkit.core.records import ArmResult, AxisResult, Record, VisitResult
from labkit.lab.experiment import Experiment, ScoreText
from labkit.lab.problems import VERDICTS, problems
from labkit.lab.reading.told import told_problems
from labkit.plan.values import is_number, is_whole, shown

_GOALS = ("improves", "holds")
_STATUSES = ("warmup", "ok", "noisy", "failed")
_KINDS = ("experiment", "control")
# Fields of the record's experiment that its file states as well.
_STATED = ("name", "statement", "improves", "holds", "workload", "score", "seed", "design", "looks")


def misshapen(record: Record) -> Iterator[str]:
    """Every field that a decision could not read, as `record.field: what is needed, got what`."""
    parts: tuple[Callable[[Record], Iterator[str]], ...] = (_tables, _arms, _visits, _axes, told_problems)
    for part in parts:
        found = [f"record.{text}" for text in part(record)]
        yield from found
        if found and part in (_tables, _arms):
            return
    yield from (f"record.experiment.{text}" for text in _experiment_problems(record))


def differences(experiment: Experiment, record: Record) -> Iterator[str]:
    """What the file states otherwise than the record: claims, margins, work, text, seed and both arms.

    The record must not be misshapen. A model is the same by its name, or by the last part of its path.
    """
    asked, measured = _of_file(experiment), dict(record.experiment)
    # Written before some of its fields existed, it says by their absence what they are by default.
    measured["workload"] = Workload(**measured.get("workload", {})).identity()
    for name in _STATED:
        stated, found = plain(asked[name]), measured.get(name)
        if canonical_json(stated) != canonical_json(found):
            yield f"{name}: {shown(found)} was measured, and the file states {shown(stated)}"
    for role in ROLES:
        yield from _other_arm(getattr(experiment, role), record.arm(role))


def _of_file(experiment: Experiment) -> dict[str, Any]:
    """As a record holds it: a text or trace file by its name alone."""
    data = replace(experiment, workload=experiment.workload.portable()).to_json()
    if data["score"]:
        data["score"] = {**data["score"], "name": PurePath(data["score"]["name"]).name}
    return data


def _other_arm(asked: Arm, result: ArmResult) -> Iterator[str]:
    measured = Arm.from_identity(result.arm)
    if not _same_model(asked.model, measured.model):
        yield f"{result.role}.model: {measured.model} was measured, and the file states {asked.model}"
    # What a recipe makes of an arm is not in the file.
    if asked.recipe is None and replace(asked.portable(), model="") != replace(measured, model=""):
        yield f"{result.role}: {measured.label()} was measured, and the file states {asked.label()}"


def _same_model(asked: str, measured: str) -> bool:
    path = PurePath(asked)
    return measured in (asked, path.name, path.stem if path.suffix == ".gguf" else path.name)


def _tables(record: Record) -> Iterator[str]:
    for name in ("experiment", "machine", "provenance", "quality", "quiet"):
        value = getattr(record, name)
        if not isinstance(value, dict):
            yield f"{name}: a table is needed, got {shown(value)}"
    for name in ("run_id", "state", "outcome", "started_at", "workload_hash"):
        value = getattr(record, name)
        if not isinstance(value, str):
            yield f"{name}: a text is needed, got {shown(value)}"
    if record.kind not in _KINDS:
        yield f"kind: one of {', '.join(_KINDS)} is needed, got {shown(record.kind)}"
    if isinstance(record.quiet, dict):
        yield from _quiet_problems(record.quiet)


def _quiet_problems(quiet: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(quiet.get("quiet"), bool):
        yield f"quiet.quiet: true or false is needed, got {shown(quiet.get('quiet'))}"
    try:
        standing = [Probe(**probe) for probe in quiet.get("standing", ())]
    except TypeError as error:
        yield f"quiet.standing: probes are needed, got {error}"
        return
    for probe in standing:
        if not (is_number(probe.value) and is_number(probe.limit) and isinstance(probe.ok, bool)):
            yield f"quiet.standing: a probe with numbers is needed, got {shown(probe.to_json())}"
    if not isinstance(quiet.get("reasons", []), list):
        yield f"quiet.reasons: a list of texts is needed, got {shown(quiet['reasons'])}"


def _arms(record: Record) -> Iterator[str]:
    roles = [arm.role for arm in record.arms]
    if roles != list(ROLES):
        yield f"arms: one baseline and one candidate are needed, got {', '.join(map(str, roles)) or 'none'}"
        return
    for arm in record.arms:
        if not isinstance(arm.plan, dict):
            yield f"arms.{arm.role}.plan: a table is needed, got {shown(arm.plan)}"
        for name in ("family", "fingerprint"):
            value = arm.artifact.get(name) if isinstance(arm.artifact, dict) else None
            if not isinstance(value, str) or not value:
                yield f"arms.{arm.role}.artifact.{name}: a text is needed, got {shown(value)}"
        try:
            Arm.from_identity(arm.arm)
        except (TypeError, AttributeError, ValueError) as error:
            yield f"arms.{arm.role}.arm: the settings of an arm are needed, got {error}"


def _visits(record: Record) -> Iterator[str]:
    for number, visit in enumerate(record.visits):
        problem = _visit_problem(visit)
        if problem:
            yield f"visits[{number}].{problem}"
            return  # the same may be wrong with hundreds


def _visit_problem(visit: VisitResult) -> str:
    if visit.role not in ROLES or visit.status not in _STATUSES:
        return f"role, status: those of a visit are needed, got {shown((visit.role, visit.status))}"
    if not is_whole(visit.pair):
        return f"pair: a whole number is needed, got {shown(visit.pair)}"
    if not isinstance(visit.metrics, dict) or not all(map(is_number, visit.metrics.values())):
        return f"metrics: finite numbers are needed, got {shown(visit.metrics)}"
    failed = visit.quiet.get("failed", []) if isinstance(visit.quiet, dict) else None
    if not isinstance(failed, list) or not all(is_number(visit.quiet.get(name)) for name in failed):
        return f"quiet: the findings of its probes are needed, got {shown(visit.quiet)}"
    return ""


def _axes(record: Record) -> Iterator[str]:
    for number, axis in enumerate(record.axes):
        problem = _axis_problem(axis)
        if problem:
            yield f"axes[{number}].{problem}"


def _axis_problem(axis: AxisResult) -> str:
    for name, options in (("metric", METRICS), ("goal", _GOALS), ("verdict", VERDICTS)):
        value = getattr(axis, name)
        if not isinstance(value, str) or value not in options:
            return f"{name}: one of {', '.join(options)} is needed, got {shown(value)}"
    for name in ("margin", "estimate", "low", "high", "n", "p_value", "p_holm", "alpha", "floor"):
        if not is_number(getattr(axis, name)):
            return f"{name}: a finite number is needed, got {shown(getattr(axis, name))}"
    if not 0 < axis.alpha <= ALPHA:
        return f"alpha: a level above 0 and up to {ALPHA:g} is needed, got {shown(axis.alpha)}"
    return "" if axis.floor >= 0 else f"floor: at least 0 is needed, got {shown(axis.floor)}"


def _experiment_problems(record: Record) -> Iterator[str]:
    """What would be wrong with the record's experiment, were it written in a file."""
    data = record.experiment
    for name, kind in (("name", str), ("statement", str), ("improves", dict), ("holds", dict)):
        if not isinstance(data.get(name), kind):
            yield f"{name}: {kind.__name__} is needed, got {shown(data.get(name))}"
            return
    try:
        workload = Workload(**data.get("workload", {}))
    except TypeError as error:
        yield f"workload: counts of tokens are needed, got {error}"
        return
    try:
        score = ScoreText(**data["score"]) if data.get("score") else None
    except TypeError as error:
        yield f"score: a text to score on is needed, got {error}"
        return
    baseline, candidate = (Arm.from_identity(record.arm(role).arm) for role in ROLES)
    claim = Hypothesis(data["statement"], data["improves"], data["holds"])
    made = Experiment(data["name"], claim, baseline, candidate, workload, "2027-02-01", score=score)
    ran = {name: data[name] for name in ("pairs", "design", "looks") if name in data}
    for text in problems(replace(made, control=record.kind == "control", **ran)):
        # How many pairs were asked for is no part of it, and two models may bear one name.
        if not text.startswith(("pairs:", "candidate: an arm that differs")):
            yield text
