"""The KV budget of a batch is never exceeded, whatever rows join, leave, fork or are held back."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import pytest

from labkit.core.errors import PlanRefused, SessionFailed
from labkit.engine.batching.batch import Batch
from tests.numerics.tiny_models import GEMMA3, LLAMA, tiny_model

OPTIONS: dict[str, Any] = {"stop_tokens": (), "prefill_chunk": 64}


def held(batch: Batch) -> int:
    """Bytes of all caches, those of rows that decode together and those of rows alone."""
    whole: Any = batch
    alone = sum(cache.nbytes for row in whole._loop.rows() for cache in row.run._caches)
    joint = [company._together for company in whole._companions.values()]
    return alone + sum(sum(together.bytes_by_row()) for together in joint)


@pytest.mark.parametrize("kv", ["bf16", "affine:8"])
@pytest.mark.parametrize("config", [LLAMA, GEMMA3], ids=["llama", "gemma3"])
def test_caches_stay_within_the_budget(config: dict[str, Any], kv: str) -> None:
    model, most, forks = tiny_model(config, mx.bfloat16), 0.0, 0
    for seed in range(3):
        source = random.Random(seed)
        limit = source.choice([600_000, 1_500_000, 3_000_000])
        with model.batch(kv_budget_bytes=limit, kv=kv, **OPTIONS) as batch:
            lengths = [(source.choice([3, 40, 300, 700]), source.randrange(2, 60)) for _ in range(10)]
            sessions = []
            for prompt, new in lengths:
                try:
                    sessions.append(batch.session(list(range(prompt)), max_tokens=new))
                except PlanRefused:
                    continue
            turns = 0
            while batch.turn():
                turns += 1
                most = max(most, held(batch) / limit)
                live = [session for session in sessions if session.tokens and not session.finished]
                if turns % 31 == 0 and live:
                    try:
                        sessions.append(live[0].fork(seed=turns))
                        forks += 1
                    except SessionFailed:
                        continue
                for session in sessions[::2]:
                    session.take()
    assert 0.3 < most <= 1.0
    assert forks


def test_a_branch_without_bytes_is_refused_and_the_trunk_goes_on() -> None:
    model = tiny_model(LLAMA, mx.bfloat16)
    alone = model.session(list(range(40)), max_tokens=8, **OPTIONS).run().tokens
    with model.batch(kv_budget_bytes=300_000, **OPTIONS) as batch:
        session = batch.session(list(range(40)), max_tokens=8)
        session.run(until=lambda step: len(session.tokens) == 3)
        with pytest.raises(SessionFailed, match="bytes of the KV budget were needed for a branch"):
            session.fork()
        assert session.run().tokens == alone
