"""Head to head: the paired experiment of a model against mlx-lm, and what its record says. Runs nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from labkit.bench.statistics import MIN_UNITS
from labkit.core.arm import Arm, Workload
from labkit.core.hypothesis import Hypothesis
from labkit.core.records import AxisResult, Record
from labkit.lab.experiment import Experiment
from labkit.lab.measuring.controls import NEVER, name_for

# The interval's lower end must reach it: at most 2% of mlx-lm's decode rate may be lost.
FLOOR = 0.98
MARGIN = 0.02
PAIRS = 32
METRIC = "decode_tps"
WORKLOAD = Workload(prompt_tokens=32, new_tokens=64)
ORACLE = "mlx-lm"


def head_to_head(model: str, name: str, pairs: int) -> Experiment:
    """The experiment `verify-<name>`: labkit's default arm of a model against mlx-lm's own `generate_step`.

    model: as arms name it. It has no file and decides nothing, so it never expires.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return Experiment(
        name=name_for("verify", slug),
        hypothesis=Hypothesis(f"labkit decodes {name} as fast as mlx-lm", holds={METRIC: MARGIN}),
        baseline=Arm(model, method=ORACLE),
        candidate=Arm(model),
        workload=WORKLOAD,
        expires=NEVER,
        score=None,
        pairs=pairs,
    )


def decode_axis(record: Record) -> AxisResult | None:
    """The axis of a record that compares decode with mlx-lm's; None where it is no such comparison."""
    baseline, candidate = (record.arm(role) for role in ("baseline", "candidate"))
    against = _is_plain(baseline.arm, ORACLE) and _is_plain(candidate.arm, None)
    same = baseline.artifact.get("fingerprint") == candidate.artifact.get("fingerprint")
    if record.state != "complete" or record.kind != "experiment" or not against or not same:
        return None
    return next((axis for axis in record.axes if axis.metric == METRIC and axis.n >= MIN_UNITS), None)


def raced_parity(record: Record) -> Mapping[str, Any]:
    """How the race's own tokens compare with mlx-lm's (see `parity`); empty where nothing was."""
    oracles = record.parity.get("candidate", {}).get("oracles", {})
    return oracles.get(f"{ORACLE} kv={Arm('').kv}", {})


def _is_plain(arm: Mapping[str, Any], method: str | None) -> bool:
    """Whether an arm differs from a model's default in its method alone."""
    return Arm.from_identity(arm) == Arm(arm["model"], method=method)
