"""Assemble a record from what a run found: arms, visits, verdicts, quality, provenance.

Writes nothing and asks nothing of this machine, so that what a killed run left becomes a record as well.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from labkit.bench.pairs import ROLES, Role
from labkit.bench.stability import stability
from labkit.bench.statistics import MIN_UNITS, single_sample_interval
from labkit.bench.verdict import outcome
from labkit.core.arm import Arm
from labkit.core.metrics import METRICS
from labkit.core.records import ArmResult, AxisResult, Estimate, Record, VisitResult
from labkit.lab.measuring.findings import Findings
from labkit.lab.measuring.looks import judged, stopped
from labkit.lab.measuring.measured import Measured, noisy_visits, unstable_rates
from labkit.lab.measuring.parity import parity
from labkit.lab.measuring.samples import samples
from labkit.lab.measuring.scrub import scrub
from labkit.model.quality import summarize


def assemble(
    findings: Findings, state: Literal["complete", "partial"], ended: datetime, root: Path
) -> Record:
    """The record of a run, without a path of this machine. A run that stopped early decides nothing.

    ended: when the run was last known to live; not before its start, wherever a clock was set back to.
    """
    experiment, measured = findings.file.experiment, findings.measured
    axes = judged(findings)
    if state == "partial":
        axes = tuple(_stopped(axis, findings) for axis in axes)
    return Record(
        run_id=findings.run_id(state),
        kind="control" if experiment.control else "experiment",
        state=state,
        started_at=findings.started.isoformat(timespec="seconds"),
        ended_at=max(ended, findings.started).isoformat(timespec="seconds"),
        outcome=outcome(axes) if measured.ok_pairs() else "failed",
        experiment=_experiment(findings),
        workload_hash=experiment.workload.hash(),
        machine=findings.machine,
        provenance=findings.provenance
        | {"text_hash": findings.text_hash, "windows_hash": findings.windows_hash},
        arms=tuple(_arm(findings, role) for role in ROLES),
        visits=tuple(_public(visit, root) for visit in measured.visits),
        axes=axes,
        quality=summarize(findings.scores).to_json() if findings.scores else {},
        roofline={role: _with_fractions(findings, role) for role in findings.rooflines},
        quiet=_quiet(measured),
        notes=tuple(scrub(note, root) for note in findings.notes),
        journal_id=findings.journal_id,
        resumed=tuple(findings.resumed),
        looks=tuple(findings.looks),
        floor=findings.floor.to_json(len(measured.ok_pairs())) if findings.floor else {},
        noise=_noise(findings),
        parity=parity(findings.parity),
        prediction={r: card["prediction"] for r, card in findings.rooflines.items() if "prediction" in card},
    )


def _quiet(measured: Measured) -> dict[str, Any]:
    noisy = list(noisy_visits(measured))
    return {
        "quiet": not noisy,
        "reasons": noisy,
        "unstable": list(unstable_rates(measured)),
        "made_again": len(measured.noisy()),
        "standing": [probe.to_json() for probe in measured.standing],
    }


def _noise(findings: Findings) -> dict[str, Any]:
    """Drift and autocorrelation of each metric of the hypothesis that visits measure, over the good pairs."""
    found: dict[str, Any] = {}
    for name, sample in samples(findings).items():
        metric = METRICS[name]
        if metric.source == "visit" and len(sample.candidate) >= MIN_UNITS:
            seen = stability(sample.baseline, sample.candidate, metric.scale == "ratio")
            found[name] = {**seen.to_json(), "phrases": list(seen.phrases(metric.title, metric.unit))}
    return found


def _experiment(findings: Findings) -> dict[str, Any]:
    """The experiment as it ran: pairs as asked for, a text or trace file by its name alone."""
    experiment = findings.file.experiment
    data = replace(experiment, workload=experiment.workload.portable()).to_json()
    if data["score"]:
        data["score"] = {**data["score"], "name": Path(data["score"]["name"]).name}
    planned = {"planned_pairs": data["pairs"], "pairs": findings.pairs}
    return {**data, **planned, "source_hash": findings.file.source_hash}


def _stopped(axis: AxisResult, findings: Findings) -> AxisResult:
    """An axis of a run that ended early: its interval stands, a verdict would be optional stopping."""
    if METRICS[axis.metric].source == "artifact":
        return axis
    pairs = f"{len(findings.measured.ok_pairs())} of {findings.pairs} pairs"
    done = f"its visits were done after {pairs}, and it ended before the rest was"
    note = done if stopped(findings) else f"stopped at {pairs}"
    return replace(axis, verdict="unresolved", notes=(*axis.notes, note))


def _public(visit: VisitResult, root: Path) -> VisitResult:
    error, tail = (scrub(text, root) for text in (visit.error, visit.output_tail))
    return replace(visit, error=error, output_tail=tail)


def _arm(findings: Findings, role: Role) -> ArmResult:
    arm, baseline = (_portable(findings, r) for r in (role, "baseline"))
    opened = findings.measured.opened[role]
    return ArmResult(
        role=role,
        label=arm.label(opened["artifact"]["dtype"]),
        arm=arm.identity(),
        arm_hash=arm.hash(),
        plan=opened["plan"],
        plan_hash=opened["plan_hash"],
        artifact={**opened["artifact"], "family": _family(findings, role)},
        metrics=_estimates(findings, role),
        reference_hash=baseline.hash(),
    )


def _family(findings: Findings, role: Role) -> str:
    """An arm with the baseline's vocabulary is a variant of the same model, whatever its folder is called."""
    opened, baseline = findings.measured.opened[role], findings.measured.opened["baseline"]
    same = opened["tokenizer_hash"] and opened["tokenizer_hash"] == baseline["tokenizer_hash"]
    return baseline["family"] if same else opened["family"]


def _portable(findings: Findings, role: Role) -> Arm:
    """The arm with its model and files by name, wherever on this machine they lie."""
    arm = getattr(findings.file.experiment, role)
    return replace(arm.portable(), model=findings.measured.opened[role]["artifact"]["name"])


def _estimates(findings: Findings, role: Role) -> dict[str, Estimate]:
    measured, found = findings.measured, {}
    good = [v.metrics for v in measured.visits if v.role == role and v.status == "ok"]
    for name, metric in METRICS.items():
        values = [m[name] for m in good if name in m]
        if values:
            found[name] = single_sample_interval(values, metric.unit)
    artifact = measured.opened[role]["artifact"]
    for name in ("artifact_bytes", "effective_bpw"):
        found[name] = _exact(artifact[name], METRICS[name].unit)
    return found | _quality_estimates(findings, role)


def _quality_estimates(findings: Findings, role: Role) -> dict[str, Estimate]:
    """The baseline is its own reference, so its KL is 0 by definition."""
    if not findings.scores:
        return {}
    if role == "baseline":
        perfect = {"kl_mean_nats": 0.0, "ppl_ratio": 1.0, "top1_agreement": 1.0}
        return {name: _exact(value, METRICS[name].unit) for name, value in perfect.items()}
    quality = summarize(findings.scores)
    kl, ratio = quality.kl_mean_nats, quality.ppl_ratio
    return {
        "kl_mean_nats": _bounded(kl, quality.kl_mean_low, quality.kl_mean_high, quality.windows, "nats"),
        "ppl_ratio": _bounded(ratio, quality.ppl_ratio_low, quality.ppl_ratio_high, quality.windows, "x"),
        "top1_agreement": _bounded(
            quality.top1_agreement, quality.top1_low, quality.top1_high, quality.windows, "share"
        ),
    }


def _bounded(value: float, low: float | None, high: float | None, n: int, unit: str) -> Estimate:
    """An estimate over windows; one window claims no interval."""
    if low is None or high is None:
        return _exact(value, unit)
    return Estimate(value, low, high, n, unit)


def _exact(value: float, unit: str) -> Estimate:
    return Estimate(value, value, value, 1, unit)


def _with_fractions(findings: Findings, role: Role) -> dict[str, Any]:
    """The cost card with what the arm reached of its limits (medians over good visits)."""
    card = dict(findings.rooflines[role])
    for name in ("decode_tps", "prefill_tps"):
        values = [
            v.metrics[name]
            for v in findings.measured.visits
            if v.role == role and v.status == "ok" and name in v.metrics
        ]
        if values and card.get(f"{name}_limit"):
            card[f"{name}_fraction"] = float(np.median(values)) / card[f"{name}_limit"]
    return card
