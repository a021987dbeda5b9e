"""Remarks: what there is to say of a run beside its verdicts, in words. Reads a record; computes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from labkit.bench.pairs import ROLES
from labkit.core.metrics import METRICS
from labkit.core.records import ArmResult, AxisResult, Record
from labkit.lab.measuring.measured import Measured, made_again
from labkit.lab.measuring.parity import describe
from labkit.plots.amounts import amount, digits


def remarks(record: Record) -> tuple[str, ...]:
    """One line each: looks, design, the A/A floor, noise, repeated visits, parity and predictions."""
    return (
        *_looks(record),
        *_design(record),
        *_floor(record),
        *_noise(record),
        *_repeated(record),
        *_parity(record.parity),
        *(line for arm in record.arms for line in _predicted(arm, record.prediction.get(arm.role, {}))),
    )


def floor_words(axis: AxisResult) -> str:
    """What two equal arms differ by on this axis: a share, or in the metric's unit."""
    if axis.scale == "ratio":
        return f"{100 * axis.floor:.2g}%" if axis.floor > 5e-5 else "0%"
    return f"{digits(axis.floor, 2)} {METRICS[axis.metric].unit}"


def _looks(record: Record) -> Iterator[str]:
    planned = record.experiment.get("looks", 1)
    if planned <= 1 or not record.looks:
        return
    last, asked = record.looks[-1], record.experiment.get("pairs")
    decided, whole = _decided(record, last), record.state == "complete"
    where = f"look {len(record.looks)} of {planned}, after {last['pairs']} of {asked} pairs"
    level = f" (intervals of {1 - last['alpha']:.1%})" if last["alpha"] else ""
    rest = "" if whole else "; the run ended before the rest was done"
    yield (f"decided at {where}{level}{rest}" if decided else f"not decided by {where}{level}")


def _decided(record: Record, last: Mapping[str, Any]) -> bool:
    """Whether the visits decided all that they measure by the last look; a partial run keeps no verdict."""
    visited = [axis.verdict for axis in record.axes if METRICS[axis.metric].source == "visit"]
    verdicts = visited if record.state == "complete" else last.get("verdicts", {}).values()
    return bool(verdicts) and "unresolved" not in verdicts


def _design(record: Record) -> Iterator[str]:
    if record.experiment.get("design") == "fresh":
        yield "design fresh: every visit had a new process, which ran the workload cold and then warm"


def _floor(record: Record) -> Iterator[str]:
    """The control that the verdicts rest on; that there is none is said where visits decide something."""
    visited = [axis for axis in record.axes if METRICS[axis.metric].source == "visit" and axis.n]
    if not visited or record.kind == "control":
        return
    if not record.floor:
        yield "no A/A floor is known for this arm, workload and machine: labkit control measures it"
        return
    known = [axis for axis in visited if axis.metric in record.floor.get("metrics", {})]
    each = ", ".join(f"{METRICS[axis.metric].title} {floor_words(axis)}" for axis in known) or "of other axes"
    yield f"A/A floor: {each} (control {record.floor['run_id']}, {record.floor['pairs']} pairs)"
    if missing := [METRICS[axis.metric].title for axis in visited if axis not in known]:
        yield f"no A/A floor is known of {', '.join(missing)}"


def _noise(record: Record) -> Iterator[str]:
    for found in record.noise.values():
        yield from found.get("phrases", ())


def _repeated(record: Record) -> Iterator[str]:
    measured = Measured(list(record.visits))
    if again := made_again(measured):
        yield again
    if failed := len(measured.failed()):
        yield f"{failed} visit{' failed and counts' if failed == 1 else 's failed and count'} for nothing"


def _parity(parity: Mapping[str, Any]) -> Iterator[str]:
    said = [f"the {role} {_equals(parity[role])}" for role in ROLES if role in parity]
    if said:
        yield f"parity: {'; '.join(said)}"


def _equals(found: Mapping[str, Any]) -> str:
    """What an arm equals, else how it differs from each oracle."""
    if found["equals"]:
        return f"equals {' and '.join(found['equals'])} bit for bit"
    told = [f"{name}: {describe(compared)}" for name, compared in found["oracles"].items()]
    return f"equals no oracle ({', '.join(told)})" if told else "has no oracle"


def _predicted(arm: ArmResult, prediction: Mapping[str, float]) -> Iterator[str]:
    """Measured beside predicted, for what was measured."""
    both = [
        f"{METRICS[name].title} {amount(arm.metrics[name].value, METRICS[name].unit)}"
        f" ({amount(value, METRICS[name].unit)} predicted)"
        for name, value in prediction.items()
        if name in METRICS and name in arm.metrics
    ]
    if both:
        yield f"{arm.role}: {', '.join(both)}"
