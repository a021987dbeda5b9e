"""Records as experiments on SmolLM2-135M in f32 on a two-core CPU would leave them, with made-up noise."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Any, Literal

from labkit.core.arm import Arm, Workload
from labkit.core.metrics import METRICS
from labkit.core.records import ArmResult, AxisResult, Estimate, Record, VisitResult

SLUG = "linux-x86-64-cpu-generic-2c-8g"
ARTIFACT_BYTES = 538_060_800
PARAMETERS = 134_515_008
Role = Literal["baseline", "candidate"]


EQUAL = {
    "tokens": 32,
    "tokens_equal": True,
    "logprobs_equal": True,
    "first_token": None,
    "first_logprobs": None,
}
APART = {**EQUAL, "tokens_equal": False, "logprobs_equal": False, "first_token": 7, "first_logprobs": 0}
PARITY: dict[str, Any] = {
    "baseline": {
        "equals": ["mlx-lm kv=bf16"],
        "oracles": {"mlx-lm kv=bf16": EQUAL},
        "prompt_tokens": 1024,
    },
    "candidate": {
        "equals": ["mlx-lm kv=affine:8"],
        "oracles": {"mlx-lm kv=affine:8": EQUAL, "baseline": APART},
        "prompt_tokens": 1024,
    },
}


@dataclass(frozen=True)
class Shape:
    """What a sample experiment claims and finds. values: metric -> (baseline, candidate)."""

    name: str
    statement: str
    baseline: Arm
    candidate: Arm
    workload: Workload
    improves: dict[str, float]
    holds: dict[str, float]
    values: dict[str, tuple[float, float]]
    kl: tuple[float, float, float] | None
    verdicts: dict[str, str]
    outcome: str


KV8 = Shape(
    name="kv8-at-1k",
    statement="8-bit KV frees memory at 1k context and nobody notices",
    baseline=Arm("smollm2"),
    candidate=Arm("smollm2", kv="affine:8"),
    workload=Workload(prompt_tokens=1024, new_tokens=64),
    improves={"kv_bytes": 0.40},
    holds={"decode_tps": 0.03, "kl_mean_nats": 0.01},
    values={
        "decode_tps": (17.0, 14.0),
        "prefill_tps": (280.0, 118.0),
        "ttft_s": (3.66, 8.68),
        "kv_bytes": (23_592_960, 6_635_520),
    },
    kl=(0.0021, 0.0017, 0.0025),
    verdicts={"kv_bytes": "better", "decode_tps": "worse", "kl_mean_nats": "equivalent"},
    outcome="trade-off",
)

BLAS = Shape(
    name="mkl-prefill",
    statement="MKL multiplies f32 prefill on x86-64 and changes nothing else",
    baseline=Arm("smollm2", blas="reference"),
    candidate=Arm("smollm2", blas="mkl"),
    workload=Workload(prompt_tokens=256, new_tokens=32),
    improves={"prefill_tps": 1.0},
    holds={"kl_mean_nats": 0.001},
    values={
        "prefill_tps": (8.7, 280.0),
        "decode_tps": (7.7, 17.2),
        "ttft_s": (29.4, 0.95),
        "kv_bytes": (11_796_480, 11_796_480),
    },
    kl=(3e-9, 2e-9, 4e-9),
    verdicts={"prefill_tps": "better", "kl_mean_nats": "equivalent"},
    outcome="supported",
)


def sample_record(
    shape: Shape = KV8,
    run_id: str = "20261105T101500Z-kv8-at-1k-0a1b2c",
    started_at: str = "2026-11-05T10:15:00Z",
    slug: str = SLUG,
    pairs: int = 10,
    noise: float = 0.02,
    split: str = "promote",
) -> Record:
    """A complete record: warm-ups, `pairs` ABBA pairs, estimates per arm and a verdict per axis."""
    random_source = random.Random(run_id)
    visits = tuple(_visits(shape, pairs, noise, random_source))
    return Record(
        run_id=run_id,
        kind="experiment",
        state="complete",
        started_at=started_at,
        ended_at=started_at.replace("10:15", "10:19"),
        outcome=shape.outcome,
        experiment={
            "name": shape.name,
            "statement": shape.statement,
            "improves": shape.improves,
            "holds": shape.holds,
            "expects": {},
            "workload": shape.workload.identity(),
            "score": {"name": "prose", "split": split, "windows": 16, "window_tokens": 512},
            "expires": "2027-02-01",
            "pairs": pairs,
            "planned_pairs": pairs,
            "design": "process-pair",
            "looks": 1,
            "source_hash": "5f0c2d1e9b8a7766",
        },
        workload_hash=shape.workload.hash(),
        machine={
            "slug": slug,
            "backend": "cpu",
            "chip": "generic",
            "cores": 2,
            "memory_gib": 8,
            "os": "linux",
        },
        provenance={
            "labkit_version": "0.1.0",
            "code_hash": "c0de0123456789ab",
            "git_revision": "55772b6",
            "git_dirty": False,
            "python": "3.11.9",
            "packages": {"mlx": "0.32.4"},
            "text_hash": "7e87" if shape.kl else "",
            "windows_hash": f"{split}-16x512" if shape.kl else "",
            "seed": 0,
        },
        arms=(_arm(shape, "baseline", visits), _arm(shape, "candidate", visits)),
        visits=visits,
        axes=tuple(_axis(shape, metric, visits) for metric in (*shape.improves, *shape.holds)),
        quality={"kl_mean_nats": shape.kl[0]} if shape.kl else {},
        quiet={"quiet": True, "load_1m": 0.3},
    )


def full_record(run_id: str = "20261105T101500Z-kv8-at-1k-f0110a", pairs: int = 16) -> Record:
    """A record that tells everything there is to tell: two looks, a floor, noise, parity and predictions.

    It stopped at the first of its looks, after half of the pairs; two visits were noisy and one failed.
    """
    record = sample_record(run_id=run_id, pairs=pairs // 2)
    odd = (
        _odd(record.visits[4], 2, "noisy"),
        _odd(record.visits[9], 3, "noisy"),
        _odd(record.visits[6], 4, "failed"),
    )
    experiment = {**record.experiment, "pairs": pairs, "planned_pairs": pairs, "looks": 2}
    verdicts = {axis.metric: axis.verdict for axis in record.axes}
    floors = {"decode_tps": 0.004, "kv_bytes": 0.0}
    return replace(
        record,
        experiment=experiment,
        visits=tuple(sorted((*record.visits, *odd), key=lambda v: v.started_s)),
        axes=tuple(replace(a, alpha=0.031, floor=floors.get(a.metric, 0.0)) for a in record.axes),
        looks=(
            {
                "pairs": pairs // 2,
                "planned": pairs // 2,
                "alpha": 0.031,
                "verdicts": verdicts,
                "stopped": True,
            },
        ),
        floor={
            "run_id": "20261104T080000Z-null-control-aa00aa",
            "started_at": "2026-11-04T08:00:00Z",
            "pairs": 16,
            "metrics": {m: {"estimate": 0.0, "low": -f, "high": f, "floor": f} for m, f in floors.items()},
        },
        noise={
            "decode_tps": {
                "level_drift": -0.061,
                "level_drift_p": 0.002,
                "ratio_lag1": 0.1,
                "ratio_lag1_p": None,
                "phrases": ["decode drifted by -6.1% over the run (p 0.002)"],
            },
            "kv_bytes": {"level_drift": 0.0, "level_drift_p": 1.0, "phrases": []},
        },
        parity=PARITY,
        prediction={
            "baseline": {"decode_tps": 18.0, "peak_bytes": 600_000_000},
            "candidate": {"decode_tps": 16.0},
        },
    )


def _odd(like: VisitResult, number: int, status: Any) -> VisitResult:
    """A visit just before `like`, which was made because this one did not count."""
    metrics = {} if status == "failed" else {**like.metrics, "decode_tps": 0.7 * like.metrics["decode_tps"]}
    quiet = {"quiet": False, "failed": ["load_1m"], "load_1m": 5.0} if status == "noisy" else {}
    error = "the worker died" if status == "failed" else ""
    started = like.started_s - 6.0
    return replace(
        like, index=100 + number, status=status, metrics=metrics, quiet=quiet, error=error, started_s=started
    )


def with_candidate(record: Record, **changes: Any) -> Record:
    """The record with fields of its candidate arm replaced."""
    baseline, candidate = record.arms
    return replace(record, arms=(baseline, replace(candidate, **changes)))


def from_elsewhere(record: Record, **provenance: Any) -> Record:
    """The record with parts of its provenance replaced."""
    return replace(record, provenance={**record.provenance, **provenance})


def _visits(shape: Shape, pairs: int, noise: float, source: random.Random) -> list[VisitResult]:
    roles: list[Role] = ["baseline", "candidate"]
    visits = [_visit(shape, i, -1, role, "warmup", 0.0, source) for i, role in enumerate(roles)]
    for pair in range(pairs):
        for role in roles if pair % 2 == 0 else roles[::-1]:
            visits.append(_visit(shape, len(visits), pair, role, "ok", noise, source))
    return visits


def _visit(
    shape: Shape, index: int, pair: int, role: Role, status: Any, noise: float, source: random.Random
) -> VisitResult:
    side = 0 if role == "baseline" else 1
    exact = {"kv_bytes"}
    metrics = {
        name: values[side] * (1 if name in exact else math.exp(source.gauss(0, noise)))
        for name, values in shape.values.items()
    }
    decode = tuple(1 / metrics["decode_tps"] for _ in range(4))
    return VisitResult(
        index, pair, role, status, 12.5 * index, metrics, (0.9,), decode, (1, 1), "ab12", {"quiet": True}
    )


def _measured(visits: tuple[VisitResult, ...], role: Role, name: str) -> list[float]:
    return [v.metrics[name] for v in visits if v.role == role and v.status == "ok"]


def _spread(values: list[float], unit: str) -> Estimate:
    """Mean and a t interval's width in spirit: enough for a picture."""
    mean = sum(values) / len(values)
    sd = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    half = 2.26 * sd / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half, len(values), unit)


def _arm(shape: Shape, role: Role, visits: tuple[VisitResult, ...]) -> ArmResult:
    arm = shape.baseline if role == "baseline" else shape.candidate
    metrics = {name: _spread(_measured(visits, role, name), "visit") for name in shape.values}
    if shape.kl and role == "candidate":
        metrics["kl_mean_nats"] = Estimate(*shape.kl, n=16, unit="window")
    return ArmResult(
        role=role,
        label=arm.label(),
        arm=arm.identity(),
        arm_hash=arm.hash(),
        plan={"kv": arm.kv},
        plan_hash=f"plan-{arm.hash()}",
        artifact={
            "name": "smollm2",
            "family": "smollm2-135m",
            "fingerprint": "f1f2f3f4",
            "dtype": "float32",
            "artifact_bytes": ARTIFACT_BYTES,
            "parameters": PARAMETERS,
            "effective_bpw": 8 * ARTIFACT_BYTES / PARAMETERS,
        },
        metrics=metrics,
        reference_hash=shape.baseline.hash(),
    )


def _axis(shape: Shape, name: str, visits: tuple[VisitResult, ...]) -> AxisResult:
    metric = METRICS[name]
    if metric.scale == "absolute":
        value, low, high = shape.kl or (0.0, 0.0, 0.0)
    else:
        sides = zip(_measured(visits, "candidate", name), _measured(visits, "baseline", name), strict=True)
        ratios = [c / b if metric.better == "higher" else b / c for c, b in sides]
        spread = _spread(ratios, "pair")
        value, low, high = spread.value, spread.low, spread.high
    goal = "improves" if name in shape.improves else "holds"
    return AxisResult(
        metric=name,
        goal=goal,
        margin={**shape.improves, **shape.holds}[name],
        scale=metric.scale,
        estimate=value,
        low=low,
        high=high,
        n=16 if metric.scale == "absolute" else len(visits) // 2 - 1,
        unit="window" if metric.scale == "absolute" else "pair",
        p_value=0.002,
        p_holm=0.006,
        verdict=shape.verdicts[name],  # type: ignore[arg-type]
    )
