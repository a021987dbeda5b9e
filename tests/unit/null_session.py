"""Sessions on the null model, built without the shipped catalog so that mlx stays out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labkit.core.request import Request
from labkit.core.spec import Catalog, KVSpec
from labkit.engine.engine import Engine
from labkit.engine.method import Execution
from labkit.engine.model import Model
from labkit.engine.null import NullMethod
from labkit.engine.session import Session
from labkit.model.artifact import Artifact
from labkit.model.null import parse_null
from labkit.plan.plan import Plan

CATALOG = Catalog(
    kv={"bf16": KVSpec("bf16", "", "", "", frozenset({"full", "sliding", "recurrent"}))},
    methods={"null": NullMethod.SPEC},
    default_prefill_chunk=256,
    backend="null",
)


class NoScheme:
    """Stands for a KV scheme that the null method never asks."""

    SPEC = CATALOG.kv["bf16"]

    def __init__(self, setting: object) -> None:
        pass


class Scripted(Model):
    """A model whose sessions run on a given execution."""

    execution: Execution

    def start(self, plan: Plan, request: Request) -> Execution:
        return self.execution


def null_model_without_mlx(spec: str = "null") -> Model:
    model = parse_null(spec)
    engine = Engine(CATALOG, {"bf16": NoScheme}, {"null": NullMethod})
    profile = model.profile
    artifact = Artifact(model.name, profile.family, Path(), profile.fingerprint, profile.dtype, 0, 0, 0.0)
    return Model(model.name, None, profile, model.tokenizer, model, artifact, engine, model.clock)


def null_session(
    prompt: str, *, spec: str = "null", stop_tokens: tuple[int, ...] = (), **options: Any
) -> Session:
    """A session on a fresh null model."""
    return null_model_without_mlx(spec).session(prompt, stop_tokens=stop_tokens, **options)


def scripted_session(execution: Execution, max_tokens: int, **options: Any) -> Session:
    """A session on an execution of one's own."""
    null = null_model_without_mlx()
    model = Scripted(**{name: getattr(null, name) for name in Model.__dataclass_fields__})
    object.__setattr__(model, "execution", execution)
    return model.session("a", max_tokens=max_tokens, stop_tokens=(), **options)
