"""The `mlx-lm-batch` method: mlx-lm's own BatchGenerator as an arm, so that batches can be paired against it.

A session of its own is a batch of one; `bench` hands it several requests at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from labkit.core.request import Request
from labkit.core.spec import MethodSpec
from labkit.core.step import Step
from labkit.engine.method import Clock, Execution
from labkit.kv.base import Scheme
from labkit.plan.plan import Plan

# Of BatchGenerator: prompts that it reads together.
PREFILL_ROWS = 8


class UpstreamBatch:
    """Greedy generation by mlx-lm's BatchGenerator, in the model's own caches."""

    SPEC: ClassVar[MethodSpec] = MethodSpec(
        "mlx-lm-batch", "mlx-lm's BatchGenerator", greedy_only=True, kv_families=frozenset({"bf16"})
    )

    def start(self, graph: Any, scheme: Scheme, plan: Plan, request: Request, clock: Clock) -> Execution:
        return UpstreamBatchRun(graph, plan, request, clock)


class UpstreamRows:
    """Requests that mlx-lm's BatchGenerator answers together; each is known by a number of the caller's."""

    def __init__(self, graph: Any, prefill_chunk: int, rows: int) -> None:
        """rows: that decode at a time, at most."""
        from mlx_lm.generate import BatchGenerator

        self._generator = BatchGenerator(
            graph,
            completion_batch_size=rows,
            prefill_batch_size=min(PREFILL_ROWS, rows),
            prefill_step_size=prefill_chunk,
        )
        self._index: dict[int, int] = {}

    def insert(self, index: int, prompt: Sequence[int], max_tokens: int) -> None:
        (uid,) = self._generator.insert([list(prompt)], [max_tokens])
        self._index[uid] = index

    def advance(self) -> list[tuple[int, int, Any, bool]]:
        """One decode step and one chunk of the prompts that are read: (index, token, logprobs, ended) each.

        logprobs: `(vocab,)`.
        """
        _, responses = self._generator.next()
        return [
            (self._index[r.uid], int(r.token), r.logprobs, r.finish_reason is not None) for r in responses
        ]

    @property
    def kv_bytes(self) -> int:
        """Bytes of all caches."""
        return int(self._generator.prompt_cache_nbytes)

    def close(self) -> None:
        self._generator.close()


class UpstreamBatchRun:
    """The state of one attempt: a batch of one."""

    def __init__(self, graph: Any, plan: Plan, request: Request, clock: Clock) -> None:
        self._plan, self._clock = plan, clock
        self._rows: UpstreamRows | None = UpstreamRows(graph, plan.prefill_chunk, 1)
        self._rows.insert(0, request.prompt, plan.max_tokens)
        self._position = len(request.prompt)
        self._left = plan.max_tokens

    def advance(self) -> Step | None:
        if not self._left or self._rows is None:
            return None
        started = self._clock()
        found = self._rows.advance()
        kv_bytes = self._rows.kv_bytes
        if not found:
            return Step("prefill", (), None, self._clock() - started, kv_bytes, 1, 0)
        self._left, self._position = self._left - 1, self._position + 1
        _, token, logprobs, _ = found[0]
        kept = logprobs[None] if self._plan.logprobs else None
        return Step("decode", (token,), kept, self._clock() - started, kv_bytes, 1, self._position)

    def verify(self) -> None:
        pass

    def close(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.close()
