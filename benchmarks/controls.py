"""The bench measured on effects that are known before: 20 A/A runs, and arms slowed by 10% and by the margin.

`python benchmarks/controls.py` runs them all on smollm2 (some 12 minutes on two cores), keeps a record of
each in results/ and prints a table. `labkit control benchmarks/controls.py` runs a single one.
"""

from __future__ import annotations

import sys

from labkit import Arm, Experiment, Hypothesis, Workload, control
from labkit.lab.measuring.finished import Finished

MARGIN = 0.03
AA_RUNS, AA_PAIRS = 20, 8
SLOWED, SLOWED_PAIRS = (0.10, MARGIN), 16

experiment = Experiment(
    name="bench-itself",
    hypothesis=Hypothesis(
        "the bench finds what is known to be there, and nothing else",
        holds={"decode_tps": MARGIN, "prefill_tps": MARGIN},
    ),
    baseline=Arm("smollm2"),
    candidate=Arm("smollm2", kv="affine:8"),
    workload=Workload(prompt_tokens=64, new_tokens=16),
    score=None,
    expires="2027-06-01",
)


def main() -> None:
    """Run every control, one after the other, with a line for each axis."""
    sys.stdout.write("| control | seed | axis | change for the better | verdict | quiet |\n")
    sys.stdout.write("|---|---|---|---|---|---|\n")
    for seed in range(AA_RUNS):
        _report("two equal arms", seed, control(experiment, seed=seed, pairs=AA_PAIRS))
    for share in SLOWED:
        done = control(experiment, slowed=share, pairs=SLOWED_PAIRS)
        _report(f"each step {share:.0%} longer", 0, done)


def _report(what: str, seed: int, finished: Finished) -> None:
    record = finished.record
    for axis in record.axes:
        change = f"{axis.estimate:.3f}x [{axis.low:.3f}, {axis.high:.3f}]"
        cells = (what, seed, axis.metric, change, axis.verdict, record.quiet["quiet"])
        sys.stdout.write("| " + " | ".join(map(str, cells)) + " |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
