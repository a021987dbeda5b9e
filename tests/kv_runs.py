"""A greedy run of a scheme by itself: the calls that a session makes, without its planner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import mlx.core as mx
import numpy as np

from labkit.core.kv_setting import KVSetting, LayerKV
from labkit.kv.base import Scheme
from tests.optiq_oracle import Answer, Case


def setting(case: Case, caches: int) -> KVSetting:
    """The setting that mlx-optiq is given in this case."""
    kept = {layer: LayerKV(bits, bits, group) for layer, bits, group in case.layers}
    return KVSetting("mixed", tuple(kept.get(layer) for layer in range(caches)), case.start)


def run(graph: Any, scheme: Scheme, prompt: Sequence[int], *, chunk: int, tokens: int) -> Answer:
    """Prefill in chunks, then argmax."""
    return run_on(graph, scheme, scheme.make(graph), prompt, chunk=chunk, tokens=tokens)


def run_on(
    graph: Any, scheme: Scheme, caches: list[Any], prompt: Sequence[int], *, chunk: int, tokens: int
) -> Answer:
    """The same on caches that the caller looks at afterwards, or that hold a beginning."""
    rest, drawn, rows = list(prompt), [], []
    while len(rest) > 1:
        size = min(chunk, len(rest) - 1)
        graph(mx.array([rest[:size]]), cache=caches)
        scheme.settle(caches)
        mx.eval([cache.state for cache in caches])
        rest = rest[size:]
    for _ in range(tokens):
        logits = graph(mx.array([rest]), cache=caches)[:, -1, :]
        scheme.settle(caches)
        logprobs = logits - mx.logsumexp(logits, keepdims=True)
        rest = [int(cast(int, mx.argmax(logprobs).item()))]
        drawn += rest
        rows.append(np.array(logprobs[0].astype(mx.float32)))
    return Answer(drawn, np.stack(rows))
