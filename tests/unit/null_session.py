"""Sessions on the null model, built without the shipped catalog so that mlx stays out."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.core.request import Request
from labkit.core.spec import Catalog, KVSpec
from labkit.engine.null import NullMethod
from labkit.engine.session import Session
from labkit.model.null import parse_null
from labkit.plan.negotiate import negotiate
from labkit.plan.plan import Refusal

CATALOG = Catalog(
    kv={"bf16": KVSpec("bf16", "", "", "", frozenset({"full", "sliding", "recurrent"}))},
    methods={"null": NullMethod.SPEC},
    default_prefill_chunk=256,
    backend="null",
)


def null_session(
    prompt: str,
    *,
    spec: str = "null",
    max_tokens: int,
    prefill_chunk: int | None = None,
    stop_tokens: Sequence[int] = (),
) -> Session:
    """A session on a fresh null model."""
    model = parse_null(spec)
    request = Request(
        tuple(model.tokenizer.encode(prompt)),
        max_tokens,
        prefill_chunk=prefill_chunk,
        stop_tokens=tuple(stop_tokens),
    )
    plan = negotiate(request, model.profile, CATALOG)
    if isinstance(plan, Refusal):
        raise plan.error()
    execution = NullMethod().start(model, None, plan, request, model.clock)
    return Session(plan, execution, model.tokenizer.decode)
