"""Teacher-forced logits under a KV scheme: what quality is scored on. Joins the engine to `model.score`."""

from __future__ import annotations

from typing import Any

from labkit.core.errors import ModelUnavailable
from labkit.core.own_class import OwnClass
from labkit.engine.model import Model
from labkit.kv.base import check_layout, is_early
from labkit.model.score import CachedLogits, LogitsSource


def session_logits(model: Model, kv: str | type | OwnClass = "bf16", block: int = 64) -> LogitsSource:
    """The logits that a session with this KV scheme would see on a given text.

    A window's context is one chunk and the rest comes in blocks of `block` tokens; the scheme settles after
    each, as in a session. Raises PlanRefused where the scheme does not fit the model, SessionFailed where
    the caches are not what the plan said.
    """
    if model.path is None:
        raise ModelUnavailable("a model with weights is needed to score text", got=model.name)
    plan = model.resolve(model.request((0,), max_tokens=1, kv=kv))
    scheme = model.engine.scheme(plan)

    def settle(caches: list[Any]) -> None:
        scheme.settle(caches)
        check_layout(caches, plan.cache_layout, plan.kv, early=is_early(caches, plan.kv_setting))

    return CachedLogits(model.graph, lambda: scheme.make(model.graph), settle, block)
