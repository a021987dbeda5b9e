"""A lone row of the batch engine against a session of its own, same BLAS, paired."""

from labkit import Arm, Experiment, Hypothesis, Workload

experiment = Experiment(
    name="batch-row-vs-session",
    hypothesis=Hypothesis(
        "a lone row decodes as fast as a session: the machinery of a batch costs at most 1%",
        holds={"decode_tps": 0.01},
    ),
    baseline=Arm("smollm2"),
    candidate=Arm("smollm2", policy="fcfs"),
    workload=Workload(prompt_tokens=32, new_tokens=64),
    expects={"decode_tps": "equivalent"},
    score=None,
    pairs=24,
    expires="2099-01-01",
)
