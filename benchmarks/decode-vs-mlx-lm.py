"""B = 1 decode through a labkit session against mlx-lm's own `generate_step`, same BLAS, paired."""

from labkit import Arm, Experiment, Hypothesis, Workload

experiment = Experiment(
    name="decode-vs-mlx-lm",
    hypothesis=Hypothesis(
        "a session decodes as fast as generate_step: the step machinery costs at most 2%",
        holds={"decode_tps": 0.02},
    ),
    baseline=Arm("smollm2", method="mlx-lm"),
    candidate=Arm("smollm2"),
    workload=Workload(prompt_tokens=32, new_tokens=64),
    expects={"decode_tps": "equivalent"},
    score=None,
    pairs=32,
    expires="2099-01-01",
)
