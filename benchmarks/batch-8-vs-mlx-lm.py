"""Eight rows of equal length through the batch engine against mlx-lm's BatchGenerator, paired."""

from labkit import Arm, Experiment, Hypothesis, Workload

experiment = Experiment(
    name="batch-8-vs-mlx-lm",
    hypothesis=Hypothesis(
        "eight rows decode together as fast as in BatchGenerator",
        holds={"aggregate_decode_tps": 0.02},
    ),
    baseline=Arm("smollm2", method="mlx-lm-batch"),
    candidate=Arm("smollm2", policy="prefill-first"),
    workload=Workload(prompt_tokens=64, new_tokens=48, concurrency=8),
    expects={"aggregate_decode_tps": "equivalent"},
    score=None,
    pairs=16,
    expires="2099-01-01",
)
