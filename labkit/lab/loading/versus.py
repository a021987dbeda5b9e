"""Versus: two arms under one load, measured as any experiment is, with a record."""

from __future__ import annotations

from typing import Any

from labkit.bench.statistics import MIN_UNITS
from labkit.core.arm import Arm, Workload
from labkit.lab.loading.against import other_arm
from labkit.lab.loading.pair import load_pair
from labkit.lab.measuring.finished import Finished
from labkit.lab.measuring.run import run
from labkit.model.backend import prepare


def load_against(
    arm: Arm,
    words: str,
    workload: Workload,
    *,
    pairs: int = MIN_UNITS,
    margin: float | None = None,
    **options: Any,
) -> Finished:
    """Measure an arm against the one that the words state, and keep the record.

    words: what the baseline states in place of the arm's own, as `other_arm` takes them. options: those of
    `labkit.run`. Raises as `labkit.run` does.
    """
    methods, own_way = _methods()
    baseline = other_arm(arm, words, methods, own_way)
    return run(load_pair(baseline, arm, workload, pairs, margin), **options)


def _methods() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of all methods, and of those that share their rows in a way of their own."""
    prepare()
    from labkit.bench.load import SERVERS
    from labkit.engine.catalog import METHODS

    return tuple(method.SPEC.name for method in METHODS), tuple(SERVERS)
