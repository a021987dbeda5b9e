"""Record: the immutable result of one run with its provenance, and its JSON form.

Knows the fields and their meaning; not where records lie (`store`) nor who makes them (`lab`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from labkit.core.errors import RecordInvalid
from labkit.core.migrations import SCHEMA, migrate

Verdict = Literal["better", "worse", "equivalent", "unresolved"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95% interval over n units (visits or windows); low == high == value where exact."""

    value: float
    low: float
    high: float
    n: int
    unit: str


@dataclass(frozen=True, slots=True)
class ArmResult:
    """One arm as it ran. arm: `Arm.identity()`. plan: `Plan.identity()`.

    artifact: name, family, fingerprint, dtype, artifact_bytes, parameters, effective_bpw.
    metrics: metric name -> Estimate over this arm's measured visits (unpaired, for the frontier).
    reference_hash: hash of the arm that quality metrics compare with (the baseline's own hash on itself).
    """

    role: Literal["baseline", "candidate"]
    label: str
    arm: dict[str, Any]
    arm_hash: str
    plan: dict[str, Any]
    plan_hash: str
    artifact: dict[str, Any]
    metrics: dict[str, Estimate]
    reference_hash: str


@dataclass(frozen=True, slots=True)
class VisitResult:
    """One run of the workload on one arm. status: `warmup`, `ok`, `noisy` (a probe failed, so it was made
    again and does not count) or `failed` (with error and output_tail).

    metrics: metric name -> value. prefill_seconds, decode_seconds: raw samples, one a step.
    decode_tokens: tokens committed by each decode step.
    quiet: probe findings.
    """

    index: int
    pair: int
    role: Literal["baseline", "candidate"]
    status: Literal["warmup", "ok", "noisy", "failed"]
    started_s: float
    metrics: dict[str, float] = field(default_factory=dict)
    prefill_seconds: tuple[float, ...] = ()
    decode_seconds: tuple[float, ...] = ()
    decode_tokens: tuple[int, ...] = ()
    tokens_hash: str = ""
    quiet: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    output_tail: str = ""


@dataclass(frozen=True, slots=True)
class AxisResult:
    """The verdict on one metric, as improvement of the candidate over the baseline.

    For a ratio metric estimate, low and high are ratios where above 1 is better in the metric's good
    direction; for an absolute metric they are differences in its unit where lower or higher is better as
    the metric says. p_value belongs to the verdict's claim; p_holm is adjusted over the experiment's axes.
    alpha: the two-sided level that this look spends, so the interval is one of 1 - alpha. floor: what two
    equal arms differ by on this machine (a ratio less 1, or in the metric's unit); 0 where it is not known.
    """

    metric: str
    goal: Literal["improves", "holds"]
    margin: float
    scale: Literal["ratio", "absolute"]
    estimate: float
    low: float
    high: float
    n: int
    unit: Literal["pair", "quad", "window"]
    p_value: float
    p_holm: float
    verdict: Verdict
    notes: tuple[str, ...] = ()
    alpha: float = 0.05
    floor: float = 0.0


@dataclass(frozen=True, slots=True)
class Record:
    """One run. outcome: `supported`, `trade-off`, `refuted` or `undecided`; `failed` where no pair was.

    kind: `experiment`, or `control` where the effect was known before: two equal arms (the A/A floor), or one
    slowed on purpose. A control is no point on a frontier and decides nothing.

    experiment: name, statement, improves, holds, expects, workload, score, expires, pairs (asked
    for), planned_pairs, seed, design, looks (how many were planned), source_hash.
    machine: slug, class fields (backend, chip, cores, memory_gib, os, arch); no host or user name.
    provenance: labkit_version, code_hash, git_revision, git_dirty, python, packages, text_hash, windows_hash.
    quality: the streaming-KL summary, or empty. quiet: summary of the probes, with `quiet` true or false, and
    `unstable`, the rates of an arm that differ too much between its visits.
    journal_id: names the run over its resumptions; empty where none was kept. resumed: one entry for each,
    with at, pairs (done by then), gap_s (seconds since the last sign of life) and partial (the run id of the
    record that the run had been sealed into, or empty).
    looks: the interim analyses in order, each with pairs, planned, alpha (two-sided, nominal), verdicts
    (metric -> verdict of the axes that visits measure) and stopped: whether it decided all that visits
    measure, or was the last. The verdicts of a complete run are those of its last look, which may have
    decided nothing; a partial run may end before a look stopped it. floor: the A/A control that the verdicts
    rest on, with run_id, started_at, pairs and metrics (metric -> estimate, low,
    high and floor); empty where there is none. noise: metric -> what is known of its samples over the run,
    see `labkit.bench.stability`. parity: role -> whose tokens and log-probabilities the arm equals.
    prediction: role -> what had been predicted of the arm (metric -> value).
    """

    run_id: str
    kind: Literal["experiment", "control"]
    state: Literal["complete", "partial"]
    started_at: str
    ended_at: str
    outcome: str
    experiment: dict[str, Any]
    workload_hash: str
    machine: dict[str, Any]
    provenance: dict[str, Any]
    arms: tuple[ArmResult, ...]
    visits: tuple[VisitResult, ...]
    axes: tuple[AxisResult, ...]
    quality: dict[str, Any] = field(default_factory=dict)
    roofline: dict[str, Any] = field(default_factory=dict)
    quiet: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    journal_id: str = ""
    resumed: tuple[dict[str, Any], ...] = ()
    looks: tuple[dict[str, Any], ...] = ()
    floor: dict[str, Any] = field(default_factory=dict)
    noise: dict[str, Any] = field(default_factory=dict)
    parity: dict[str, Any] = field(default_factory=dict)
    prediction: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    def arm(self, role: str) -> ArmResult:
        return next(a for a in self.arms if a.role == role)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Record:
        """A record of this schema or an older one, which is migrated.

        Raise RecordInvalid where the schema is unknown or a field is missing, unknown or misshapen.
        """
        data = migrate(data)
        try:
            return cls(
                **{
                    **data,
                    "arms": tuple(_arm(a) for a in data["arms"]),
                    "visits": tuple(_visit(v) for v in data["visits"]),
                    "axes": tuple(AxisResult(**{**a, "notes": tuple(a["notes"])}) for a in data["axes"]),
                    "notes": tuple(data["notes"]),
                    "resumed": tuple(dict(r) for r in data["resumed"]),
                    "looks": tuple(dict(look) for look in data["looks"]),
                }
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise RecordInvalid(
                "a complete record was needed", got=f"{type(error).__name__}: {error}"
            ) from error


def _arm(data: dict[str, Any]) -> ArmResult:
    return ArmResult(**{**data, "metrics": {k: Estimate(**v) for k, v in data["metrics"].items()}})


def _visit(data: dict[str, Any]) -> VisitResult:
    listed = {k: tuple(data[k]) for k in ("prefill_seconds", "decode_seconds", "decode_tokens")}
    return VisitResult(**{**data, **listed})
