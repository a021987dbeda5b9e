"""Samples: what a run measured of each metric that its hypothesis names. Judges nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from labkit.bench.pairs import ROLES
from labkit.bench.verdict import Samples
from labkit.core.metrics import METRICS
from labkit.lab.measuring.findings import Findings
from labkit.model.quality import summarize


def samples(findings: Findings) -> Mapping[str, Samples]:
    """What was measured of each metric of the hypothesis; a metric that was not measured is absent."""
    found: dict[str, Samples] = {}
    for name in findings.file.experiment.hypothesis.margins():
        sample = _SOURCES[METRICS[name].source](findings, name)
        if sample is not None:
            found[name] = sample
    return found


def _visit_samples(findings: Findings, metric: str) -> Samples | None:
    measured = findings.measured
    pairs = measured.ok_pairs()
    try:
        baseline, candidate = (measured.values(role, metric, pairs) for role in ROLES)
    except KeyError:
        return None
    return Samples(candidate, baseline) if pairs else None


def _score_samples(findings: Findings, metric: str) -> Samples | None:
    if not findings.scores:
        return None
    quality = summarize(findings.scores)
    if metric == "kl_mean_nats":
        return Samples(quality.window_kl_nats)
    if metric == "top1_agreement":
        return Samples(quality.window_top1)
    means = [(np.mean(s.nll_candidate), np.mean(s.nll_reference)) for s in findings.scores]
    return Samples([float(c) for c, _ in means], [float(r) for _, r in means])


def _artifact_samples(findings: Findings, metric: str) -> Samples | None:
    baseline, candidate = (findings.measured.opened[role]["artifact"][metric] for role in ROLES)
    return Samples([candidate], [baseline]) if baseline and candidate else None


_SOURCES = {"visit": _visit_samples, "score": _score_samples, "artifact": _artifact_samples}
