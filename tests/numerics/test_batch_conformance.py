"""Batch conformance: KV scheme x architecture x shape of a batch, against the row alone and BatchGenerator.

Every cell has a status: it works, it is refused when planned, or it is a gap with its reason, strictly: a gap
that closes fails here until it is taken off the list.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from labkit.core.errors import PlanRefused
from labkit.core.sampling import Sampling
from labkit.engine.batching.batch import Batch
from labkit.engine.batching.session import BatchedSession
from labkit.engine.session import Session
from tests.numerics.batch_cases import ARCHITECTURES, SCHEMES, SHAPES, kv_of, model_of
from tests.numerics.batch_rows import alone, assert_same, opened, prompt_of, read_all
from tests.numerics.batch_verdict import Cell, Verdict, judge, judge_on

# Architectures that a CPU runs in f32 alone, so that their cells are those of the reference BLAS.
F32_ONLY = ("qwen3_moe", "deepseek_v3", "qwen3_next")
# Architectures on which every scheme but bf16 is refused, and what the refusal says.
REFUSED = {
    "deepseek_v3": "hold latents",
    "qwen3_next": "layer 0 of tiny-qwen3_next: recurrent, one state in place of keys and values",
    "mamba": "layers 0-1 of tiny-mamba: recurrent, one state in place of keys and values",
}
# Shapes that the reference BLAS runs for every scheme; bf16 runs all there.
FEW = ("3 rows", "8 ragged", "leaves", "joins past the window")
# What mlx-lm's batch differs from a row alone by under an optimised f32 BLAS, whose sums depend on the rows.
OPTIMISED = 1e-4


# How a gap shows: MLX raises, or the numbers differ.
RAISED = {"bf16": RuntimeError, "f32": AssertionError}


def gap_of(cell: Cell, dtype: str, oracle: str) -> str | None:
    """Why a cell does not hold against an oracle; None where it does."""
    if dtype == "bf16" and cell.architecture in F32_ONLY:
        return "never on a CPU: MLX's gather_mm takes f32 alone"
    # Where a window is passed in a batch of several rows.
    ring = cell.architecture == "gemma3_text" and cell.shape not in ("1 row", "3 rows")
    if oracle == "upstream" and dtype == "f32" and ring:
        return "never: a ring of BatchGenerator has another order than the row's alone, and f32 sums tell"
    return None


def cells(dtype: str, oracle: str) -> list[Any]:
    """The cells that run in a dtype, a gap with its mark."""
    found = []
    for architecture in ARCHITECTURES:
        for scheme in SCHEMES if oracle == "alone" else ("bf16",):
            if scheme != "bf16" and architecture in REFUSED:
                continue
            for shape in SHAPES:
                cell = Cell(scheme, architecture, shape)
                if _runs(cell, dtype):
                    reason = gap_of(cell, dtype, oracle)
                    gap = pytest.mark.xfail(reason=reason or "", strict=True, raises=RAISED[dtype])
                    marks = () if reason is None else (gap,)
                    found.append(pytest.param(cell, id=str(cell), marks=marks))
    return found


def _runs(cell: Cell, dtype: str) -> bool:
    if dtype == "bf16":
        # One cell says that none of them runs.
        return cell.architecture not in F32_ONLY or (cell.scheme, cell.shape) == ("bf16", "2 rows")
    if cell.scheme == "bf16":
        return cell.architecture in F32_ONLY or cell.architecture in ("llama", "gemma3_text")
    return cell.shape in FEW and cell.architecture in ("qwen3_moe", "gemma3_text")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kv")


@cache
def in_bf16(cell: Cell, folder: Path) -> Verdict:
    return judge(cell, mx.bfloat16, folder)


def on_reference(cell: Cell) -> Verdict:
    asked = {param.values[0] for oracle in ("alone", "upstream") for param in cells("f32", oracle)}
    return judge_on("reference", sorted(asked))[str(cell)]


def assert_decoded_together(cell: Cell, verdict: Verdict) -> None:
    """The batch was one: else a comparison would show nothing."""
    shape = SHAPES[cell.shape]
    count = len(shape.prompts)
    if shape.together:
        assert {rows for row in verdict.rows for rows in row} == {count}
    assert max(rows for row in verdict.rows for rows in row) == count
    assert [len(row) for row in verdict.rows] == [shape.ends(index) for index in range(count)]


@pytest.mark.parametrize("cell", cells("bf16", "alone"))
def test_a_row_is_what_it_is_alone(cell: Cell, folder: Path) -> None:
    """Bit for bit, padded or not: sums in 16 bits do not depend on the rows here, docs/batch-numerics.md."""
    verdict = in_bf16(cell, folder)
    assert_decoded_together(cell, verdict)
    assert (verdict.tokens, verdict.from_alone) == (True, 0.0)


@pytest.mark.parametrize("cell", cells("bf16", "upstream"))
def test_a_row_is_what_mlx_lms_batch_gives(cell: Cell, folder: Path) -> None:
    verdict = in_bf16(cell, folder)
    assert (verdict.upstream_tokens, verdict.from_upstream) == (True, 0.0)


@pytest.mark.parametrize("cell", cells("f32", "alone"))
def test_a_row_is_what_it_is_alone_on_the_reference_blas(cell: Cell) -> None:
    verdict = on_reference(cell)
    assert_decoded_together(cell, verdict)
    assert (verdict.tokens, verdict.from_alone) == (True, 0.0)


@pytest.mark.parametrize("cell", cells("f32", "upstream"))
def test_a_row_is_what_mlx_lms_batch_gives_on_the_reference_blas(cell: Cell) -> None:
    verdict = on_reference(cell)
    assert (verdict.upstream_tokens, verdict.from_upstream) == (True, 0.0)


@pytest.mark.parametrize("shape", ["8 rows", "8 ragged", "leaves", "joins past the window"])
@pytest.mark.parametrize("architecture", ["llama", "gemma3_text", "deepseek_v3", "qwen3_next"])
def test_a_row_is_within_the_envelope_of_this_blas(architecture: str, shape: str, folder: Path) -> None:
    verdict = judge(Cell("bf16", architecture, shape), mx.float32, folder)
    assert (verdict.tokens, verdict.upstream_tokens) == (True, True)
    assert verdict.from_alone <= OPTIMISED
    assert verdict.from_upstream is not None and verdict.from_upstream <= OPTIMISED


@pytest.mark.parametrize("architecture", REFUSED)
@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "bf16"])
def test_a_scheme_that_does_not_fit_is_refused_when_planned(
    scheme: str, architecture: str, folder: Path
) -> None:
    with model_of(architecture, mx.float32).batch() as batch:
        with pytest.raises(PlanRefused, match=REFUSED[architecture]):
            opened(batch, prompt_of(9), kv=kv_of(scheme, folder))
        assert batch.sessions() == []


def leaves_of(session: Any, length: int) -> list[mx.array]:
    """Everything that a session's caches hold of its first `length` positions, in the order of the slots."""
    execution = session._execution
    if isinstance(session, BatchedSession):
        execution.home.bring_home(execution)
        execution = execution.run
    held = []
    for layer in execution._caches:
        for leaves in (layer.keys, layer.values):
            parts = leaves if isinstance(leaves, tuple | list) else [leaves]
            held += [leaf[..., : min(length, leaf.shape[2]), :] for leaf in parts]
    return held


def started(batch: Batch, scheme: str, folder: Path, lengths: tuple[int, ...]) -> list[BatchedSession]:
    """Sessions that have decoded together for a while."""
    kv = kv_of(scheme, folder)
    rows = [opened(batch, prompt_of(n, salt=i), kv=kv, max_tokens=40) for i, n in enumerate(lengths)]
    while min(len(session.tokens) for session in rows) < 12:
        batch.turn()
    return rows


def lone_of(session: BatchedSession) -> tuple[Session, int]:
    """The serial session of the same request, as far as the other is, and the positions that caches hold."""
    lone = session._host.model.open(session.request)  # type: ignore[attr-defined]
    lone.run(until=lambda step: len(lone.tokens) == len(session.tokens))
    # The forward in flight has written one position more than tokens are committed before it.
    return lone, len(session.request.prompt) + len(session.tokens)


@pytest.mark.parametrize("architecture", ["llama", "gemma3_text"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_caches_of_a_row_hold_the_bytes_that_they_hold_alone(
    scheme: str, architecture: str, folder: Path
) -> None:
    model = model_of(architecture)
    with model.batch() as batch:
        for index, session in enumerate(started(batch, scheme, folder, (40, 23, 40))):
            lone, length = lone_of(session)
            pairs = [leaves_of(one, length) for one in (session, lone)]
            assert len(pairs[0]) >= 2 * len(model.profile.layers)
            for mine, its in zip(*pairs, strict=True):
                assert mine.dtype == its.dtype
                assert mx.array_equal(mine, its), f"row {index}"


def test_codes_under_an_optimised_blas(folder: Path) -> None:
    """Sums that depend on the rows may put a number over the edge of a code, hardly ever and by one step."""
    model, apart = model_of("llama", mx.float32), list[mx.array]()
    with model.batch() as batch:
        for session in started(batch, "affine:8", folder, (40, 23, 40, 17, 40, 31, 9, 40)):
            lone, length = lone_of(session)
            assert session.tokens == lone.tokens
            pairs = zip(leaves_of(session, length), leaves_of(lone, length), strict=True)
            apart += [steps_apart(mine, its) for mine, its in pairs if mine.dtype == mx.uint32]
    found = np.array(mx.concatenate(apart))
    assert found.max() <= 1
    assert found.mean() <= 0.001


def steps_apart(mine: mx.array, its: mx.array) -> mx.array:
    """By how many steps the codes of 8 bits in these words differ, each."""
    bytes_of = [mx.contiguous(words).view(mx.uint8).astype(mx.int32).flatten() for words in (mine, its)]
    return mx.abs(bytes_of[0] - bytes_of[1])


@pytest.mark.parametrize("scheme", ["bf16", "affine:8", "own"])
def test_a_seed_gives_the_same_tokens_alone_and_in_any_batch(scheme: str, folder: Path) -> None:
    """Rows of one prompt under one sampling and other seeds, then of other prompts, joining one by one."""
    samplings = [
        Sampling(temperature=0.8, top_p=0.9),
        Sampling(temperature=0.8, top_p=0.9, repetition_penalty=1.3),
        Sampling(),
        Sampling(temperature=1.5, min_p=0.05, logit_bias={7: 3.0}),
    ]
    model, kv = model_of("llama"), kv_of(scheme, folder)
    asked: list[Any] = [(prompt_of(23), {"sampling": s, "seed": i}) for i, s in enumerate(samplings)]
    asked += [(prompt_of(23), {"sampling": samplings[0], "seed": seed}) for seed in (7, 8, 8)]
    asked += [(prompt_of(9 + i), {"sampling": s, "seed": 5}) for i, s in enumerate(samplings)]
    with model.batch(cap=4) as batch:
        sessions = [opened(batch, prompt, kv=kv, **options) for prompt, options in asked]
        steps = read_all(batch)
    for session, (prompt, options) in zip(sessions, asked, strict=True):
        assert_same(steps[session.name], alone(model, prompt, kv=kv, **options))
    assert sessions[5].tokens == sessions[6].tokens
    assert len({session.tokens for session in sessions[:6]}) == 6
