"""Experiments on null models: the whole bench with real worker processes, without weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from labkit.core.arm import Arm, Workload
from labkit.core.hypothesis import Hypothesis
from labkit.lab.experiment import Experiment

STEADY = "null:sd=0.02,noise=independent,kv_bytes_per_token=100"
SLOWER = "null:sd=0.02,noise=independent,kv_bytes_per_token=40,slowdown=1.1"
SLEEPY = "null:realtime=true,decode_tps=20,prefill_tps=10000"


def null_experiment(baseline: str = STEADY, candidate: str = SLOWER, **changes: Any) -> Experiment:
    """Less memory, 10% slower at 2% noise: a trade-off that 8 pairs must find."""
    experiment = Experiment(
        name="null-ab",
        hypothesis=Hypothesis("less memory", improves={"kv_bytes": 0.4}, holds={"decode_tps": 0.03}),
        baseline=Arm(baseline),
        candidate=Arm(candidate),
        workload=Workload(64, 16),
        expires="2099-01-01",
        score=None,
    )
    return replace(experiment, **changes)
