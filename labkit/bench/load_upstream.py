"""mlx-lm's BatchGenerator as a server of a load: the baseline of labkit's own batch engine."""

from __future__ import annotations

from labkit.bench.load_server import Turn
from labkit.core.arm import Arm
from labkit.core.errors import PlanRefused
from labkit.core.request import Request
from labkit.engine.batching.batch import CAP
from labkit.engine.model import Model
from labkit.engine.upstream_batch import UpstreamRows


class UpstreamServer:
    """Rows up to the arm's cap; prompts in chunks of the plan's, in the order in which they come."""

    def __init__(self, model: Model, arm: Arm, most: int) -> None:
        if arm.policy is not None or arm.kv_budget_bytes is not None:
            stated = "a policy" if arm.policy is not None else "a KV budget"
            need = "method: one that takes a policy and a KV budget was needed"
            step = f"leave {stated.partition(' ')[2]} out for mlx-lm's batches, or take labkit's own"
            raise PlanRefused(need, got=f"{arm.method} with {stated}", next_step=step)
        self._model, self._cap = model, arm.cap or CAP
        self._rows: UpstreamRows | None = None

    def submit(self, index: int, request: Request) -> None:
        plan = self._model.resolve(request)
        if self._rows is None:
            self._rows = UpstreamRows(self._model.graph, plan.prefill_chunk, self._cap)
        self._rows.insert(index, request.prompt, plan.max_tokens)

    def turn(self) -> Turn:
        assert self._rows is not None
        found = self._rows.advance()
        tokens = {index: (token,) for index, token, _, _ in found}
        ended = tuple(index for index, _, _, over in found if over)
        return Turn(tokens, ended)

    def kv_bytes(self) -> int:
        return 0 if self._rows is None else self._rows.kv_bytes

    def __enter__(self) -> UpstreamServer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rows is not None:
            self._rows.close()
            self._rows = None
