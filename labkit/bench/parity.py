"""Parity: what an arm generates on a workload, and what mlx-lm generates in its place, as digests.

Both run in the arm's worker on one loaded model: the same weights, BLAS and chunk boundaries. Every row of
log-probabilities is digested as it comes, so no more than one is held. Knows no verdict: `lab.parity` has it.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from typing import Any

import mlx.core as mx
import numpy as np

from labkit.bench.load_server import batch_of
from labkit.bench.visit import workload_request
from labkit.core.arm import Arm, Workload
from labkit.core.errors import PlanRefused
from labkit.core.request import Request
from labkit.engine.batching.batch import Batch
from labkit.engine.model import Model

# Enough for a difference to show: a wrong bit in a cache is in every row from there on.
MOST_TOKENS = 32
ORACLE = "mlx-lm"
SEVERAL = "several requests at a time are not compared"
_ROW_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Generated:
    """What one request generated. tokens: the ids. rows: of each token, the first digits of the SHA-256 of
    the raw bytes of its log-probabilities; empty where the method kept none.

    tokens_sha256: over the ids as little-endian int64. logprobs_sha256: over the bytes of all rows, or empty.
    dtype: of the rows.
    """

    tokens: tuple[int, ...]
    rows: tuple[str, ...]
    tokens_sha256: str
    logprobs_sha256: str
    dtype: str


def measure_parity(model: Model, arm: Arm, workload: Workload) -> dict[str, Any]:
    """What the arm generates (`arm`) and what its oracle does (`oracle`), MOST_TOKENS tokens at most.

    `oracle` has a name and either `generated`, or `itself` where the arm is mlx-lm, or `unavailable` with the
    reason why mlx-lm cannot run this request. A null model has no oracle and answers {}; so is nothing
    generated (`arm` is None) of a workload of several requests. Raises PlanRefused where the arm itself
    cannot run.
    """
    if model.path is None:
        return {}
    if workload.several:
        return _uncompared(arm, workload)
    short = replace(workload, new_tokens=min(workload.new_tokens, MOST_TOKENS))
    request = replace(workload_request(model, arm, short, seed=0), logprobs=True)
    try:
        return {
            "prompt_tokens": len(request.prompt),
            "prompt_sha256": _sha256_of_ids(request.prompt),
            "arm": asdict(_own(model, arm, request)),
            "oracle": {"name": f"{ORACLE} kv={arm.kv}", **_oracle(model, request)},
        }
    finally:
        mx.clear_cache()  # what a visit measures of memory is not to hold what this left


def _own(model: Model, arm: Arm, request: Request) -> Generated:
    """By the batch engine where the arm answers with it."""
    if not arm.batches:
        return generate(model, request)
    with batch_of(model, arm) as batch:
        return generate(batch, request)


def _uncompared(arm: Arm, workload: Workload) -> dict[str, Any]:
    """The answer where several requests share a server: who is beside whom is another matter in every run."""
    oracle = {"name": f"{ORACLE} kv={arm.kv}", "unavailable": SEVERAL}
    return {"prompt_tokens": workload.prompt_tokens, "prompt_sha256": "", "arm": None, "oracle": oracle}


def generate(opener: Model | Batch, request: Request) -> Generated:
    """Run a request to its end. Raises PlanRefused where it cannot run."""
    whole, rows, dtype = hashlib.sha256(), list[str](), ""
    session = opener.open(request)
    with session:
        for step in session.steps():
            for row in () if step.logprobs is None else step.logprobs:
                data = np.asarray(row.view(mx.uint8)).tobytes()
                whole.update(data)
                rows.append(hashlib.sha256(data).hexdigest()[:_ROW_DIGITS])
                dtype = str(row.dtype).rpartition(".")[2]
        tokens = session.tokens
    return Generated(tokens, tuple(rows), _sha256_of_ids(tokens), whole.hexdigest() if rows else "", dtype)


def _oracle(model: Model, request: Request) -> dict[str, Any]:
    """The same request by mlx-lm itself, or why there is none."""
    if request.method == ORACLE:
        return {"itself": True}
    try:
        return {"generated": asdict(generate(model, replace(request, method=ORACLE)))}
    except PlanRefused as error:
        return {"unavailable": str(error)}
    except Exception as error:  # mlx-lm's own failure says nothing of the arm, which has run
        return {"unavailable": f"mlx-lm failed: {type(error).__name__}: {error}"}


def _sha256_of_ids(tokens: tuple[int, ...]) -> str:
    return hashlib.sha256(np.asarray(tokens, dtype="<i8").tobytes()).hexdigest()
