"""A lab with the record of a race against mlx-lm and the badge that rests on it, without a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from labkit.bench.statistics import walsh_interval
from labkit.core.arm import Arm, Workload
from labkit.core.records import Record, VisitResult
from labkit.lab.measuring.finished import Finished
from labkit.lab.verifying.badge import Here
from labkit.lab.verifying.head_to_head import PAIRS
from labkit.lab.verifying.verify import make_badge
from labkit.lab.verifying.verify_checks import Check, open_checks, raced_check
from labkit.store.badges import Badge, write_badge
from labkit.store.write import write_record
from tests.unit.decided_lab import rejudged
from tests.unit.sample_records import SLUG, Shape, sample_record

FINGERPRINT = "f1f2f3f4" * 4
RUN_ID = "20261105T101500Z-verify-smollm2-0a1b2c"
PACKAGES = {"mlx": "0.32.4", "mlx-cpu": "0.32.4", "mlx-lm": "0.32.2", "numpy": "2.2.0"}
HERE = Here(
    machine=SLUG,
    backend="cpu/mkl",
    labkit_version="0.1.0",
    code_hash="c0de0123456789ab",
    packages={"mlx": "0.32.4", "mlx-cpu": "0.32.4", "mlx-lm": "0.32.2"},
)
RACE = Shape(
    name="verify-smollm2",
    statement="labkit decodes smollm2 as fast as mlx-lm",
    baseline=Arm("smollm2", method="mlx-lm"),
    candidate=Arm("smollm2"),
    workload=Workload(prompt_tokens=32, new_tokens=64),
    improves={},
    holds={"decode_tps": 0.02},
    values={"decode_tps": (17.0, 17.0), "kv_bytes": (1000, 1000)},
    kl=None,
    verdicts={"decode_tps": "equivalent"},
    outcome="supported",
)
EQUAL = {
    "tokens": 32,
    "tokens_equal": True,
    "logprobs_equal": True,
    "first_token": None,
    "first_logprobs": None,
}
PARITY = (
    Check(
        "parity bf16, short",
        "passed",
        "7 prompt tokens: 32 tokens and their log-probabilities equal",
        "bf16",
        7,
    ),
    Check("parity affine:8", "skipped", "refused: a head size of 32", "affine:8"),
)


def race_record(
    low: float = 0.987, *, quiet: bool = True, fingerprint: str = FINGERPRINT, same: bool = True
) -> Record:
    """A complete record of the race, whose verdict follows from its visits; its interval reaches from `low`
    to 1.004, to the last digits of a float.

    same: whether both arms' log-probabilities are equal; else they differ from the fourth token on.
    """
    record = sample_record(RACE, run_id=RUN_ID, pairs=PAIRS)
    arms = tuple(
        replace(arm, artifact={**arm.artifact, "fingerprint": fingerprint}, plan={"backend": "cpu/mkl"})
        for arm in record.arms
    )
    compared = EQUAL if same else {**EQUAL, "logprobs_equal": False, "first_logprobs": 3}
    reasons = [] if quiet else ["foreign_cpu_share up to 0.40 in 3 of 64 visits"]
    return rejudged(
        replace(
            record,
            experiment={**record.experiment, "score": None},
            visits=_visits(record, low, 1.004),
            arms=arms,
            quiet={"quiet": quiet, "reasons": reasons},
            provenance={**record.provenance, "packages": PACKAGES},
            parity={
                "candidate": {
                    "equals": ["mlx-lm kv=bf16"] if same else [],
                    "oracles": {"mlx-lm kv=bf16": compared},
                    "prompt_tokens": 32,
                }
            },
        )
    )


def _visits(record: Record, low: float, high: float) -> tuple[VisitResult, ...]:
    """The visits with candidates as fast as gives that interval, which moves and widens with its samples."""
    spread = np.linspace(-1.0, 1.0, PAIRS)
    ends = np.array(walsh_interval(spread, 0.95), dtype=float)
    wide = np.log(high / low) / np.ptp(ends)
    ratios = np.exp(np.log(low) + (spread - ends[0]) * wide)
    rates = {pair: 17.0 * float(ratio) for pair, ratio in enumerate(ratios)}
    return tuple(
        replace(
            v, metrics={**v.metrics, "decode_tps": rates.get(v.pair, 17.0) if v.role == "candidate" else 17.0}
        )
        for v in record.visits
    )


def finished(root: Path, **changes: Any) -> Finished:
    """The race, written into the lab."""
    record = race_record(**changes)
    return Finished(record, write_record(record, root))


def verified_lab(root: Path) -> tuple[Badge, Path]:
    """A lab with one badge, and where that lies."""
    (root / "experiments").mkdir(parents=True)
    ended = finished(root)
    badge = make_badge(ended, (*PARITY, raced_check(ended.record), *open_checks()), root)
    return badge, write_badge(badge, root)
