"""The KV budget of a batch is never exceeded, whatever rows join, leave, fork or are held back."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from typing import Any

import mlx.core as mx
import pytest

from labkit.core.errors import PlanRefused, SessionFailed
from labkit.engine.batching.batch import Batch
from labkit.engine.batching.session import BatchedSession
from tests.numerics.batch_rows import prompt_of
from tests.numerics.tiny_models import GEMMA3, LLAMA, tiny_model

OPTIONS: dict[str, Any] = {"stop_tokens": (), "prefill_chunk": 64}
POLICIES = ("fcfs", "shortest-prompt", "decode-first", "prefill-first", "fair")


def held(batch: Batch) -> int:
    """Bytes of all caches: of rows that decode together, of rows alone, and of snapshots."""
    whole: Any = batch
    alone = [row.run for row in whole._loop.rows()]
    kept = [row.run for session in batch.sessions() for row in session._snapshots.values()]  # type: ignore[attr-defined]
    by_itself = sum(cache.nbytes for run in (*alone, *kept) for cache in run._caches)
    joint = [company._together for company in whole._companions.values()]
    return by_itself + sum(sum(together.bytes_by_row()) for together in joint)


def opened(batch: Batch, source: random.Random) -> list[BatchedSession]:
    """Sessions of random lengths, those that fit."""
    sessions = list[BatchedSession]()
    for _ in range(7):
        prompt, new = source.choice([3, 40, 240, 300, 700]), source.randrange(2, 40)
        with suppress(PlanRefused):
            sessions.append(batch.session(prompt_of(prompt), max_tokens=new))
    return sessions


def branched(sessions: list[BatchedSession], turn: int, done: Counter[str]) -> None:
    """Branch, keep or take back one of those that run, as far as the budget lets it."""
    live = [session for session in sessions if not session.finished]
    if turn % 7 or not live or turn > 200:
        return
    what, session = ("fork", "snapshot", "replay")[turn // 7 % 3], live[turn % len(live)]
    with suppress(SessionFailed):
        if what == "fork":
            sessions.append(session.fork(seed=turn))
        elif what == "snapshot":
            session.snapshot()
        else:
            session.rewind(len(session.tokens) // 2, replay=True)
        done[what] += 1


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kv", ["bf16", "affine:4"])
@pytest.mark.parametrize("config", [LLAMA, GEMMA3], ids=["llama", "gemma3"])
def test_caches_stay_within_the_budget(config: dict[str, Any], kv: str, policy: str) -> None:
    model, most, done = tiny_model(config, mx.bfloat16), 0.0, Counter[str]()
    for seed in range(2):
        source = random.Random(f"{seed} {policy}")
        limit = source.choice([600_000, 1_500_000]) // (3 if kv == "affine:4" else 1)
        with model.batch(kv_budget_bytes=limit, kv=kv, policy=policy, **OPTIONS) as batch:
            sessions, turn = opened(batch, source), 0
            while batch.turn():
                turn += 1
                most = max(most, held(batch) / limit)
                branched(sessions, turn, done)
                most = max(most, held(batch) / limit)
                for session in sessions[::2]:
                    session.take()
    assert 0.3 < most <= 1.0
    assert all(done[what] for what in ("fork", "snapshot", "replay"))


@pytest.mark.parametrize("policy", POLICIES)
def test_padding_gives_way_to_a_row(policy: str) -> None:
    """Rows that are padded together leave no room for one that comes then, unless they are laid out anew."""
    model = tiny_model(LLAMA, mx.bfloat16)
    most, rows = 0, 0
    with model.batch(kv_budget_bytes=1_000_000, policy=policy, **OPTIONS) as batch:
        first = [batch.session(prompt_of(n), max_tokens=60) for n in (300, 240)]
        while min(len(session.tokens) for session in first) < 4:
            batch.turn()
        first.append(batch.session(prompt_of(240), max_tokens=20))
        while batch.turn():
            most, rows = max(most, held(batch)), max(rows, len(batch.queue.running))
            for session in first:
                session.take()
    assert most <= 1_000_000
    assert rows == 3 or policy == "decode-first"


def test_codes_let_more_rows_in_than_their_prompts_would() -> None:
    """Each row reserves its unquantized first chunk only until that is read."""
    model = tiny_model(LLAMA, mx.bfloat16)
    most = Counter[str]()
    for name in ("bf16", "affine:4"):
        options = {**OPTIONS, "prefill_chunk": 512, "kv": name}
        with model.batch(kv_budget_bytes=800_000, policy="prefill-first", **options) as batch:
            held_on = [batch.session(prompt_of(500), max_tokens=200) for _ in range(6)]
            while batch.turn():
                most[name] = max(most[name], len(batch.queue.running))
                assert held(batch) <= 800_000
                for session in held_on:
                    session.take()
    assert most["bf16"] == 2
    assert most["affine:4"] >= 4


def test_a_branch_of_half_a_chunk_is_counted() -> None:
    model = tiny_model(LLAMA, mx.bfloat16)
    with model.batch(kv_budget_bytes=400_000, **{**OPTIONS, "prefill_chunk": 512}) as batch:
        session = batch.session(prompt_of(500), max_tokens=8)
        assert session.row is not None
        batch.turn()
        if session.unread:
            pytest.skip("the first turn read the whole chunk")
        with pytest.raises(SessionFailed, match="bytes of the KV budget were needed for a branch"):
            session.fork()


def test_a_branch_without_bytes_is_refused_and_the_trunk_goes_on() -> None:
    model = tiny_model(LLAMA, mx.bfloat16)
    alone = model.session(prompt_of(40), max_tokens=8, **OPTIONS).run().tokens
    with model.batch(kv_budget_bytes=300_000, **OPTIONS) as batch:
        session = batch.session(prompt_of(40), max_tokens=8)
        session.run(until=lambda step: len(session.tokens) == 3)
        with pytest.raises(SessionFailed, match="bytes of the KV budget were needed for a branch"):
            session.fork()
        assert session.run().tokens == alone
