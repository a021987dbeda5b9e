"""Labs whose one experiment is open, promoted or deleted, with records as real runs would leave them."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from labkit.bench.verdict import outcome
from labkit.core.arm import Arm, Workload
from labkit.core.errors import DecisionRefused
from labkit.core.records import Record
from labkit.lab.deciding.ledger import read_files
from labkit.lab.deciding.promotion import promote
from labkit.lab.deciding.rejudging import judged
from labkit.lab.measuring.measured import Measured, noisy_visits
from labkit.store.write import write_record
from tests.unit.sample_records import SLUG, Shape, from_elsewhere, sample_record

NAME = "null-ab"
TODAY = date(2026, 12, 1)
# Stands for the hash of the checked-out code, where a test patches that.
CODE = "c0de0123456789ab"
EXPERIMENT = """
from labkit import Arm, Experiment, Hypothesis, ScoreText, Workload
experiment = Experiment(
    "null-ab",
    Hypothesis("less memory at hardly any cost", improves={"kv_bytes": 0.4},
               holds={"decode_tps": 0.2, "kl_mean_nats": 0.001}),
    Arm("null:kv_bytes_per_token=100"), Arm("null:kv_bytes_per_token=40"),
    Workload(64, 16), expires="2027-02-01", score=ScoreText(windows=16), pairs=1)
"""
BASELINE, CANDIDATE = Arm("null:kv_bytes_per_token=100"), Arm("null:kv_bytes_per_token=40")
SUPPORTED = Shape(
    name=NAME,
    statement="less memory at hardly any cost",
    baseline=BASELINE,
    candidate=CANDIDATE,
    workload=Workload(64, 16),
    improves={"kv_bytes": 0.4},
    holds={"decode_tps": 0.2, "kl_mean_nats": 0.001},
    values={"decode_tps": (100.0, 98.0), "prefill_tps": (900.0, 890.0), "kv_bytes": (8000, 3200)},
    kl=(2e-4, 1e-4, 3e-4),
    verdicts={"kv_bytes": "better", "decode_tps": "equivalent", "kl_mean_nats": "equivalent"},
    outcome="supported",
)
TRADE_OFF = replace(
    SUPPORTED,
    values={**SUPPORTED.values, "decode_tps": (100.0, 60.0)},
    verdicts={**SUPPORTED.verdicts, "decode_tps": "worse"},
    outcome="trade-off",
)
REFUTED = replace(
    SUPPORTED,
    values={**SUPPORTED.values, "kv_bytes": (8000, 7900)},
    verdicts={**SUPPORTED.verdicts, "kv_bytes": "equivalent"},
    outcome="refuted",
)
# Another candidate against the same baseline, faster and smaller than that in everything.
DOMINATING = replace(
    SUPPORTED,
    name="other-ab",
    candidate=Arm("null:kv_bytes_per_token=10"),
    values={"decode_tps": (100.0, 300.0), "prefill_tps": (900.0, 2700.0), "kv_bytes": (8000, 800)},
    kl=(3e-9, 2e-9, 4e-9),
    verdicts={**SUPPORTED.verdicts, "decode_tps": "better"},
)
RUN_ID = "20261105T101500Z-null-ab-0a1b2c"


def open_lab(root: Path, text: str = EXPERIMENT, file: str = f"{NAME}.py") -> Path:
    """A lab with one open experiment."""
    (root / "experiments").mkdir(parents=True, exist_ok=True)
    (root / "experiments" / file).write_text(text, encoding="utf-8")
    return root


def unscored(text: str) -> str:
    """The text of an experiment file without quality, of which a null model has none."""
    return text.replace(', "kl_mean_nats": 0.001', "").replace("ScoreText(windows=16)", "None")


def record_of(
    root: Path, shape: Shape = SUPPORTED, run_id: str = RUN_ID, code: str = CODE, **changes: Any
) -> Record:
    """A record of the lab's file and of the code, whose verdicts follow from its numbers.

    changes: of `sample_record`.
    """
    record = from_elsewhere(sample_record(shape, run_id, **changes), code_hash=code)
    source = next((f.source_hash for f in read_files(root / "experiments") if f.name == shape.name), "ab" * 8)
    experiment = {**record.experiment, "source_hash": source, "seed": 0}
    record = rejudged(replace(record, experiment=experiment, quality=_quality(shape)))
    assert {axis.metric: axis.verdict for axis in record.axes} == shape.verdicts
    assert record.outcome == shape.outcome
    return record


def rejudged(record: Record) -> Record:
    """The record with the axes and the outcome that its own numbers give."""
    axes = judged(record)
    return replace(record, axes=axes, outcome=outcome(axes))


def with_windows(record: Record, windows: list[float]) -> Record:
    """The record with other KL per window, judged anew."""
    scores = {"kl_mean_nats": sum(windows) / len(windows), "window_kl_nats": windows}
    return rejudged(replace(record, quality={**record.quality, **scores}))


def _quality(shape: Shape) -> dict[str, Any]:
    """Sixteen windows whose t interval is the shape's: the mean and as much above it as below."""
    if shape.kl is None:
        return {}
    mean, _, high = shape.kl
    # 2.131 is the t of 95% with 15 degrees of freedom.
    away = (high - mean) * 4 / 2.131 * math.sqrt(15 / 16)
    return {"kl_mean_nats": mean, "window_kl_nats": [mean - away, mean + away] * 8}


def measured_lab(root: Path, shape: Shape = SUPPORTED, **changes: Any) -> Path:
    """A lab with an open experiment and one record."""
    write_record(record_of(open_lab(root), shape, **changes), root)
    return root


def refusal(root: Path, **options: object) -> str:
    """The message of a promotion that must be refused and must leave everything as it is."""
    before = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}
    arguments = {"why": "it is better", "today": TODAY, "machine": SLUG, **options}
    with pytest.raises(DecisionRefused) as refused:
        promote(NAME, root=root, **arguments)
    assert {p: p.read_bytes() for p in root.rglob("*") if p.is_file()} == before
    return str(refused.value)


def unquiet(record: Record) -> Record:
    """The record as measured on a machine that was busy during three good visits."""
    noisy = [visit.index for visit in record.visits if visit.status == "ok"][:3]
    found = {"quiet": False, "failed": ["foreign_cpu"], "foreign_cpu": 1.2}
    visits = tuple(replace(v, quiet=found) if v.index in noisy else v for v in record.visits)
    reasons = list(noisy_visits(Measured(list(visits))))
    return replace(record, visits=visits, quiet={**record.quiet, "quiet": False, "reasons": reasons})


def with_visits_failed(record: Record, role: str, failed: int) -> Record:
    """The record with so many visits of an arm that failed, beside those that it has."""
    like = next(v for v in record.visits if v.role == role and v.status == "ok")
    first = 1 + max(visit.index for visit in record.visits)
    gone = (replace(like, index=first + n, pair=100 + n, status="failed", metrics={}) for n in range(failed))
    return replace(record, visits=(*record.visits, *gone))


def with_axis(record: Record, metric: str, **changes: Any) -> Record:
    """The record with fields of one of its axes replaced."""
    axes = (replace(a, **changes) if a.metric == metric else a for a in record.axes)
    return replace(record, axes=tuple(axes))


def record_path(root: Path, run_id: str = RUN_ID) -> Path:
    """Where a record of the sample machine lies."""
    return root / "results" / SLUG / f"{run_id}.json"
