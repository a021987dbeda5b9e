"""Situation of a candidate: what a record and the frozen suite say, as the words that the procedure reads.

Pure: looks at one record, and at what others found out about it. Decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from labkit.bench.pairs import ROLES
from labkit.bench.verdict import Samples, axis_verdicts
from labkit.core.hypothesis import Hypothesis
from labkit.core.metrics import METRICS
from labkit.core.records import AxisResult, Record, Verdict
from labkit.lab.deciding.crashes import crashes, failures
from labkit.lab.deciding.objections import axis_line
from labkit.lab.deciding.procedure import Situation
from labkit.lab.deciding.recorded import misshapen
from labkit.lab.deciding.rejudging import floors_of, good_pairs, look_of
from labkit.lab.deciding.sturdiness import contradictions, noises, weaknesses
from labkit.lab.measuring.parity import BASELINE, describe, is_equal

# The gate of mlx-bun over teacher-forced steps, in nats: a screen, never a substitute for evaluations.
MOST_MEAN_NATS, MOST_MAX_NATS = 5e-3, 5e-2
# Speed and size are looked at whether a hypothesis names them or not, at the margin of a held speed.
WATCHED = ("decode_tps", "prefill_tps", "kv_bytes", "peak_bytes", "artifact_bytes")
UNNAMED_MARGIN = 0.03
# What a part is where the record before it cannot be read: the word that carries the least.
_LEAST = {
    "machine": "frail",
    "visits": "crashed",
    "gain": "unresolved",
    "loss": "unresolved",
    "unnamed": "lost",
    "parity": "unmeasured",
    "kl": "unscored",
}
_NOT_LOOKED_AT = {part: (word, "not looked at") for part, word in _LEAST.items()}


@dataclass(frozen=True, slots=True)
class SuiteEvidence:
    """What the frozen suite found of the candidate against the baseline.

    tasks: task -> verdict at its margin. evidence: the ids of its records.
    """

    name: str
    tasks: Mapping[str, Verdict]
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A situation, and for each of its parts what was seen, in words."""

    situation: Situation
    details: Mapping[str, str]


def look(
    record: Record, suite: SuiteEvidence | None = None, *, outdated: str = "", contradicted: str = ""
) -> Found:
    """The situation of a record's candidate.

    suite: None where it was not run. outdated, contradicted: what makes the record so that it cannot know
    itself, such as other code than is checked out or a newer record; empty where nothing.
    """
    broken = next(misshapen(record), "")
    parts = dict(_NOT_LOOKED_AT) if broken else _parts(record)
    parts["record"] = ("contradicted", broken) if broken else _record(record, outdated, contradicted)
    if parts["record"][0] in ("whole", "outdated"):  # of any other the verdicts need not follow
        parts |= {"machine": _machine(record), "unnamed": _unnamed(record)}
    parts["suite"] = _suite(suite)
    words: dict[str, Any] = {part: word for part, (word, _) in parts.items()}
    return Found(Situation(**words), {part: detail for part, (_, detail) in parts.items()})


def _parts(record: Record) -> dict[str, tuple[str, str]]:
    return {
        **_NOT_LOOKED_AT,
        "visits": _visits(record),
        "gain": _gain(record.axes),
        "loss": _loss(record.axes),
        "parity": _parity(record.parity),
        "kl": _kl(record.quality),
    }


def _record(record: Record, outdated: str, contradicted: str) -> tuple[str, str]:
    if record.kind == "control":
        return "control", f"{record.run_id} is a control"
    if record.outcome == "failed":
        return "failed", f"{record.run_id}: no pair of visits was finished"
    if record.state == "partial":
        return "partial", f"{record.run_id} is partial"
    found = contradicted or "; ".join(contradictions(record))
    if found:
        return "contradicted", found
    return ("outdated", outdated) if outdated else ("whole", record.run_id)


def _machine(record: Record) -> tuple[str, str]:
    noise = "; ".join(noises(record))
    if not noise:
        return "quiet", "quiet"
    weak = "; ".join(weaknesses(record))
    return ("frail", f"{noise}; {weak}") if weak else ("sturdy", noise)


def _visits(record: Record) -> tuple[str, str]:
    many = "; ".join(crashes(record))
    return ("crashed", many) if many else ("ended", "; ".join(failures(record)) or "none failed")


def _gain(axes: Sequence[AxisResult]) -> tuple[str, str]:
    claimed = [axis for axis in axes if axis.goal == "improves"]
    verdicts = {axis.verdict for axis in claimed}
    shown = "; ".join(map(axis_line, claimed)) or "nothing is claimed to improve"
    if not claimed:
        return "unclaimed", shown
    if verdicts & {"equivalent", "worse"}:
        return "absent", shown
    return ("unresolved" if "unresolved" in verdicts else "came"), shown


def _loss(axes: Sequence[AxisResult]) -> tuple[str, str]:
    held = [axis for axis in axes if axis.goal == "holds"]
    verdicts = {axis.verdict for axis in held}
    shown = "; ".join(map(axis_line, held)) or "nothing is claimed to hold"
    word = "lost" if "worse" in verdicts else "unresolved" if "unresolved" in verdicts else "none"
    return word, shown


def _unnamed(record: Record) -> tuple[str, str]:
    """Axes that the hypothesis does not name, judged as if they were held at UNNAMED_MARGIN.

    At the look and with the A/A floor of the record, as those that it names.
    """
    named = {axis.metric for axis in record.axes}
    samples = {m: s for m in WATCHED if m not in named and (s := _paired(record, m)) is not None}
    if not samples:
        return "kept", "every axis that was measured is named"
    claim = Hypothesis("", holds=dict.fromkeys(samples, UNNAMED_MARGIN))
    axes = axis_verdicts(samples, claim, look_of(record), *floors_of(record, len(good_pairs(record))))
    worse = [axis_line(axis) for axis in axes if axis.verdict == "worse"]
    kept = ", ".join(f"{METRICS[axis.metric].title} {axis.verdict}" for axis in axes)
    return ("lost", "; ".join(worse)) if worse else ("kept", kept)


def _paired(record: Record, metric: str) -> Samples | None:
    """Both arms' values, one a pair, or one where the artifact has it; None where they make no ratio."""
    if METRICS[metric].source == "artifact":
        values = {role: [record.arm(role).artifact.get(metric)] for role in ROLES}
    else:
        pairs = good_pairs(record)
        by_pair = {(v.role, v.pair): v.metrics.get(metric) for v in record.visits if v.status == "ok"}
        values = {role: [by_pair.get((role, pair)) for pair in pairs] for role in ROLES}
    usable = all(_positive(value) for side in values.values() for value in side)
    if not usable or not values["candidate"]:
        return None
    baseline, candidate = ([float(v) for v in values[role] if v is not None] for role in ROLES)
    return Samples(candidate, baseline)


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0


def _parity(found: Mapping[str, Any]) -> tuple[str, str]:
    """See `labkit.lab.measuring.parity` for what a record holds."""
    candidate = found.get("candidate") or {}
    oracles = candidate.get("oracles") or {}
    equals = [name for name, compared in oracles.items() if is_equal(compared)]
    shown = "; ".join(f"{name}: {describe(compared)}" for name, compared in oracles.items())
    if BASELINE in equals:
        return "baseline", shown
    if equals:
        return "oracle", shown
    compared = any("unavailable" not in oracle for oracle in oracles.values())
    return ("none", shown) if compared else ("unmeasured", shown or "not measured")


def _kl(quality: Mapping[str, Any]) -> tuple[Literal["zero", "pass", "warn", "apart", "unscored"], str]:
    """The screen over all scored positions; a mean alone can warn, and passes nothing without its tail."""
    mean, largest = quality.get("kl_mean_nats"), quality.get("kl_max_nats")
    if mean is None:
        return "unscored", "no text was scored"
    tail = "its largest is not known" if largest is None else f"at most {largest:.2g}"
    shown = f"mean {mean:.2g} nats, {tail}; at most {MOST_MEAN_NATS:g} and {MOST_MAX_NATS:g} pass"
    if not mean <= MOST_MEAN_NATS or (largest is not None and not largest <= MOST_MAX_NATS):
        return "warn", shown
    if largest is None:  # what is not zero on average is not exact, whatever its tail
        return ("unscored" if mean == 0 else "apart"), shown
    return ("zero" if mean == 0 and largest == 0 else "pass"), shown


def _suite(suite: SuiteEvidence | None) -> tuple[Literal["confirmed", "unresolved", "lost", "not run"], str]:
    if suite is None or not suite.tasks:
        return "not run", "not run"
    shown = f"{suite.name}: {', '.join(f'{task} {verdict}' for task, verdict in suite.tasks.items())}"
    verdicts = set(suite.tasks.values())
    if "worse" in verdicts:
        return "lost", shown
    return ("unresolved" if "unresolved" in verdicts else "confirmed"), shown
