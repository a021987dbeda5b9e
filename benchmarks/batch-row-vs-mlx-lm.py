"""A lone row of the batch engine against mlx-lm's BatchGenerator, same BLAS, paired."""

from labkit import Arm, Experiment, Hypothesis, Workload

experiment = Experiment(
    name="batch-row-vs-mlx-lm",
    hypothesis=Hypothesis(
        "a lone row decodes as fast as BatchGenerator does",
        holds={"decode_tps": 0.01},
    ),
    baseline=Arm("smollm2", method="mlx-lm-batch"),
    candidate=Arm("smollm2", policy="fcfs"),
    workload=Workload(prompt_tokens=32, new_tokens=64),
    expects={"decode_tps": "equivalent"},
    score=None,
    pairs=24,
    expires="2099-01-01",
)
