"""Labs whose one experiment is open, promoted or deleted, with records as real runs would leave them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from labkit.core.arm import Arm, Workload
from labkit.core.records import Record
from labkit.lab.ledger import read_files
from labkit.store.write import write_record
from tests.unit.sample_records import SLUG, Shape, from_elsewhere, sample_record

NAME = "null-ab"
TODAY = date(2026, 12, 1)
# Stands for the hash of the checked-out code, where a test patches that.
CODE = "c0de0123456789ab"
EXPERIMENT = """
from labkit import Arm, Experiment, Hypothesis, Workload
experiment = Experiment(
    "null-ab",
    Hypothesis("less memory at hardly any cost", improves={"kv_bytes": 0.4}, holds={"decode_tps": 0.2}),
    Arm("null:kv_bytes_per_token=100"), Arm("null:kv_bytes_per_token=40"),
    Workload(64, 16), expires="2027-02-01", score=None, pairs=1)
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


def record_of(
    root: Path, shape: Shape = SUPPORTED, run_id: str = RUN_ID, code: str = CODE, **changes: Any
) -> Record:
    """A record of the lab's file and of the code. changes: of `sample_record`."""
    record = from_elsewhere(sample_record(shape, run_id, **changes), code_hash=code)
    source = next((f.source_hash for f in read_files(root / "experiments") if f.name == shape.name), "ab" * 8)
    return replace(record, experiment={**record.experiment, "source_hash": source})


def measured_lab(root: Path, shape: Shape = SUPPORTED, **changes: Any) -> Path:
    """A lab with an open experiment and one record."""
    write_record(record_of(open_lab(root), shape, **changes), root)
    return root


def unquiet(record: Record) -> Record:
    """The record as measured on a busy machine."""
    reasons = ["foreign_cpu up to 1.20 in 3 of 20 visits"]
    return replace(record, quiet={**record.quiet, "quiet": False, "reasons": reasons})


def with_axis(record: Record, metric: str, **changes: Any) -> Record:
    """The record with fields of one of its axes replaced."""
    axes = (replace(a, **changes) if a.metric == metric else a for a in record.axes)
    return replace(record, axes=tuple(axes))


def record_path(root: Path, run_id: str = RUN_ID) -> Path:
    """Where a record of the sample machine lies."""
    return root / "results" / SLUG / f"{run_id}.json"
