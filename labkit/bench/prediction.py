"""Prediction: what a loaded or lazy model is expected to do under a plan. Calibrates; runs no step of it."""

from __future__ import annotations

from dataclasses import replace

from labkit.core.arm import Workload
from labkit.engine.model import Model
from labkit.model.fit import Load, Predictor, predictor
from labkit.model.primitives import count_primitives
from labkit.plan.plan import Plan


def predict(model: Model, plan: Plan, workload: Workload) -> dict[str, float]:
    """The memory and speed of a workload, by the names of the metrics that its visits measure and by rates
    measured now in this process; empty where nobody can say how many requests there are at a time."""
    if not workload.steady:
        return {}
    asked = load_of(plan, workload)
    expected = predictor_of(model, plan)
    found = expected.predict(asked, expected.calibrate(asked)).metrics()
    if not workload.several:
        return found
    # With requests that share it, a prompt is not read at a rate of its own.
    rate, _ = found.pop("decode_tps"), found.pop("prefill_tps")
    return {"aggregate_decode_tps": rate, **found}


def load_of(plan: Plan, workload: Workload) -> Load:
    """A workload as a plan cuts it up."""
    return Load(workload.prompt_tokens, workload.new_tokens, plan.prefill_chunk, workload.concurrency)


def predictor_of(model: Model, plan: Plan) -> Predictor:
    """What predicts a model under the KV scheme of a plan. Reads shapes; the weights may be lazy."""
    scheme = model.engine.scheme(_settled(plan))
    return predictor(
        model.artifact,
        model.profile,
        plan.kv_setting,
        plan.backend.partition("/")[0],
        count_primitives(model.graph, scheme.make, scheme.settle),
    )


def _settled(plan: Plan) -> Plan:
    """The plan with caches in their final form from the first token on, where its rows reach that form."""
    setting = plan.kv_setting
    reached = setting.start <= plan.prompt_tokens + plan.max_tokens
    return replace(plan, kv_setting=replace(setting, start=0)) if reached else plan
