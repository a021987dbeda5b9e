"""Prediction: what a loaded or lazy model is expected to do under a plan. Calibrates; runs no step of it."""

from __future__ import annotations

from labkit.core.arm import Workload
from labkit.engine.model import Model
from labkit.model.fit import Load, Prediction, Predictor, predictor
from labkit.model.fit_caches import Stored
from labkit.model.primitives import count_primitives
from labkit.plan.plan import Plan


def predict(model: Model, plan: Plan, workload: Workload) -> Prediction:
    """The memory and speed of a workload, by rates measured now in this process."""
    asked = load_of(plan, workload)
    expected = predictor_of(model, plan)
    return expected.predict(asked, expected.calibrate(asked))


def load_of(plan: Plan, workload: Workload) -> Load:
    """A workload as a plan cuts it up."""
    return Load(workload.prompt_tokens, workload.new_tokens, plan.prefill_chunk, workload.concurrency)


def predictor_of(model: Model, plan: Plan) -> Predictor:
    """What predicts a model under the KV scheme of a plan. Reads shapes; the weights may be lazy."""
    scheme = model.engine.scheme(plan)
    return predictor(
        model.artifact,
        model.profile,
        Stored(plan.kv_bits, plan.kv_group_size),
        plan.backend.partition("/")[0],
        count_primitives(model.graph, scheme.make, scheme.settle),
    )
