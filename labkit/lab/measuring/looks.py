"""Looks: when a run is looked at, what it shows by then, and whether that is enough. Measures nothing."""

from __future__ import annotations

from typing import Any

from labkit.bench.floor import biases
from labkit.bench.sequential import Look, look_pairs
from labkit.bench.verdict import axis_verdicts, decided
from labkit.core.metrics import METRICS
from labkit.core.records import AxisResult
from labkit.lab.measuring.findings import Findings
from labkit.lab.measuring.samples import samples


def planned_looks(findings: Findings) -> tuple[int, ...]:
    """After how many pairs each look is; the last is the whole run."""
    return look_pairs(findings.pairs, findings.file.experiment.looks)


def stopped(findings: Findings) -> bool:
    """Whether a look so far decided everything, or was the last."""
    return bool(findings.looks) and bool(findings.looks[-1]["stopped"])


def judged(findings: Findings) -> tuple[AxisResult, ...]:
    """The verdicts at the level of the latest look, on what is measured by now."""
    return _judged(findings, Look(planned_looks(findings), max(0, len(findings.looks) - 1)))


def next_look(findings: Findings) -> dict[str, Any]:
    """The look that comes after those so far, on the visits that are there, as a record holds it."""
    look = Look(planned_looks(findings), len(findings.looks))
    axes = _judged(findings, look)
    visited = [axis for axis in axes if METRICS[axis.metric].source == "visit"]
    return {
        "pairs": len(findings.measured.ok_pairs()),
        "planned": look.planned[look.index],
        "alpha": visited[0].alpha if visited else 0.0,
        "verdicts": {axis.metric: axis.verdict for axis in visited},
        "stopped": decided(axes) or look.index == len(look.planned) - 1,
    }


def _judged(findings: Findings, look: Look) -> tuple[AxisResult, ...]:
    pairs = len(findings.measured.ok_pairs())
    floor, claim = findings.floor, findings.file.experiment.hypothesis
    known = (floor.at(pairs), biases(floor.spreads)) if floor else ()
    return axis_verdicts(samples(findings), claim, look, *known)
