"""Settle the floor of a run before its visits: find an A/A control that counts, or have one measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from labkit.core.arm import Arm
from labkit.core.events import Note
from labkit.core.records import Record
from labkit.lab.experiment import Experiment
from labkit.lab.measuring.controls import control_of, least_pairs
from labkit.lab.measuring.course import Edge
from labkit.lab.measuring.findings import Findings
from labkit.lab.measuring.floor import Floor, find_floor, floor_of, wants_floor
from labkit.model.null import is_null
from labkit.model.origin import name_of
from labkit.model.registry import get


def settle_floor(
    findings: Findings, edge: Edge, measure: Callable[[Experiment], Record] | None
) -> Floor | None:
    """The A/A control that a run rests on; None where none bears on it or can be had.

    measure: runs a control where none counts, None leaves it at a note. A null model has no machine behind
    it, so that its control is only found and never measured unasked.
    """
    experiment = findings.file.experiment
    if not wants_floor(experiment, findings.pairs):
        return None
    found = _known(findings, edge)
    if found and not found.stale:
        if not found.quiet:
            _say(findings, edge, f"the A/A control {found.run_id} was measured while the machine was busy")
        return found
    why = f"the last one is stale: {found.stale}" if found else "none is known on this machine class"
    if measure is None or is_null(experiment.baseline.model):
        if measure is None or found:
            edge.sink(Note(f"no A/A control of this baseline and workload counts ({why})"))
        return None
    edge.sink(Note(f"an A/A control comes first, to see how far equal arms lie apart ({why})"))
    return floor_of(measure(control_of(experiment, None, least_pairs(experiment))))


def _known(findings: Findings, edge: Edge) -> Floor | None:
    """The control that is there, whether it counts or not."""
    from labkit.lab.deciding.recipes import fingerprint_at_hand

    experiment, now = findings.file.experiment, edge.now()
    machine, packages = findings.machine["slug"], findings.provenance["packages"]
    arm = _in_records(experiment.baseline, edge)
    fingerprint = fingerprint_at_hand(experiment.baseline.model)
    return find_floor(edge.place, experiment, arm.hash(), machine, packages, now, fingerprint)


def _say(findings: Findings, edge: Edge, text: str) -> None:
    findings.notes.append(text)
    edge.sink(Note(text))


def _in_records(arm: Arm, edge: Edge) -> Arm:
    """The arm as records have it: with its model by name, wherever that lies."""
    if is_null(arm.model):
        return arm
    return replace(arm, model=name_of(get(arm.model, sink=edge.sink)))
