"""Error rates and power of the paired A/B, simulated visit by visit, as the tables of the guide.

    python -m benchmarks.coverage [--runs 40000]

Each row is made of that many runs: noise for each visit, the order of visits by the bench's own coins, the
bench's own intervals and verdicts. Takes about a minute on one core.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import chain

import numpy as np

from labkit.bench.power import Claim, plan_pairs
from labkit.bench.sequential import look_pairs
from tests.unit.simulated_runs import (
    LIMIT,
    MARGIN,
    NOISES,
    SD,
    aabb,
    ended,
    intervals,
    standard_error,
    ties,
    verdicts,
)

DESIGNS = ((8,), (16,), (24,), (8, 16), (8, 16, 24, 32))
CLAIMS: tuple[tuple[Claim, float, float], ...] = (
    ("better", 0.03, 0.06),
    ("better", 0.05, 0.10),
    ("worse", 0.05, -0.10),
    ("equivalent", 0.03, 0.0),
    ("equivalent", 0.05, 0.0),
)


def main() -> None:
    """Print the tables as markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40_000, help="runs behind each row")
    runs = parser.parse_args().runs
    for line in chain(errors(runs), [""], powers(runs), [""], drifts(runs)):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def errors(runs: int) -> Iterator[str]:
    """Coverage and false verdicts of each noise and design."""
    precision = f"SE {standard_error(0.95, runs):.2%} of coverage and {standard_error(0.025, runs):.2%}"
    yield f"{runs:,} runs a row: {precision} of a false verdict."
    yield ""
    yield "| noise of a visit | looks after pairs | all intervals hold | false `better` | false `worse` |"
    yield "|---|---|---|---|---|"
    for noise in NOISES:
        for planned in DESIGNS:
            yield _errors(noise, planned, runs)


def _errors(noise: str, planned: tuple[int, ...], runs: int) -> str:
    low, high = intervals(ties(noise, planned[-1], runs), planned)
    covered = np.mean(np.all((low <= 0) & (high >= 0), axis=0))
    above, below = (ended(verdicts(low, high, side * LIMIT), planned)[0] for side in (1, -1))
    false = f"{np.mean(above == 'better'):.2%} | {np.mean(below == 'worse'):.2%}"
    return f"| {noise} | {', '.join(map(str, planned))} | {covered:.2%} | {false} |"


def powers(runs: int) -> Iterator[str]:
    """What `plan_pairs` promises, and what runs of its plan find."""
    yield "| claim | margin | effect | looks | pairs | power planned | found | pairs expected | taken |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for claim, margin, effect in CLAIMS:
        for looks in (1, 2, 4):
            yield _power(claim, margin, effect, looks, runs)


def _power(claim: Claim, margin: float, effect: float, looks: int, runs: int) -> str:
    plan = plan_pairs(SD * np.sqrt(2), margin, effect, claim, looks=looks)
    planned = look_pairs(plan.pairs or 0, looks)
    low, high = intervals(ties("independent", planned[-1], runs), planned)
    said, took = ended(verdicts(low, high, float(np.log1p(effect)), margin), planned)
    found = f"{plan.power:.1%} | {np.mean(said == claim):.1%} | {plan.expected:.1f} | {took.mean():.1f}"
    return f"| `{claim}` | {margin:.0%} | {effect:+.0%} | {looks} | {plan.pairs} | {found} |"


def drifts(runs: int) -> Iterator[str]:
    """Two equal arms under a steady drift, in the order AABB and as shipped."""
    yield f"| drift, 16 pairs | order | false beyond {MARGIN:.0%} |"
    yield "|---|---|---|"
    for noise in ("drift", "strong drift"):
        for order, d in (("AABB", aabb(noise, 16, runs)), ("a coin for each pair", ties(noise, 16, runs))):
            said = verdicts(*intervals(d, (16,)))[0]
            yield f"| {noise} | {order} | {np.mean(np.isin(said, ('better', 'worse'))):.2%} |"


if __name__ == "__main__":
    main()
