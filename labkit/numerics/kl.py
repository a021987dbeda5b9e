"""KL divergence between two next-token distributions, position by position.

Knows logits, log-probabilities and target ids; not models, windows or statistics over positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from labkit.core.errors import ScoreInvalid

ROWS = 64
# One running f32 sum over 49,152 terms is off by 1e-4 on the CPU; partial sums of this many keep 1e-6.
PARTIAL = 256
# Below this |log ratio| the plain sum p*d - p + q cancels; p*(d + expm1(-d)) does not.
SMALL_LOG_RATIO = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Divergence:
    """Per-position results, each of shape `(positions,)`.

    kl_nats: KL(reference || candidate), f32. nll_reference, nll_candidate: -log p(target), nats, f32.
    top1_agrees: whether both have the same argmax (the lowest id wins a tie), bool.
    """

    kl_nats: np.ndarray
    nll_reference: np.ndarray
    nll_candidate: np.ndarray
    top1_agrees: np.ndarray

    @property
    def positions(self) -> int:
        return int(self.kl_nats.shape[0])


def log_softmax(logits: mx.array) -> mx.array:
    """f32 log-probabilities in nats, row by row, of `(positions, vocab)` logits of any float dtype."""
    wide = logits.astype(mx.float32)
    shifted = wide - wide.max(axis=-1, keepdims=True)
    return shifted - mx.log(_row_sums(mx.exp(shifted)))[:, None]


def _row_sums(terms: mx.array) -> mx.array:
    """`(rows, vocab)` -> `(rows,)`, summed in two stages."""
    rows, width = terms.shape
    padded = mx.pad(terms, [(0, 0), (0, -width % PARTIAL)])
    return padded.reshape(rows, -1, PARTIAL).sum(axis=-1).sum(axis=-1)


def kl_of_logprobs(reference: mx.array, candidate: mx.array) -> mx.array:
    """KL(reference || candidate) in nats, `(rows,)` f32, of two `(rows, vocab)` f32 log-probabilities.

    Sums p log(p/q) - p + q, which equals p log(p/q) once both sum to 1 and is non-negative term by term
    (scipy.special.kl_div), so a rounding error e of a normalisation enters as e^2/2. It is exactly 0 on
    equal inputs and infinite where the candidate excludes what the reference allows.
    """
    p, q = mx.exp(reference), mx.exp(candidate)
    log_ratio = reference - candidate
    near = p * (log_ratio + mx.expm1(-log_ratio))
    far = p * log_ratio - p + q
    terms = mx.where(mx.abs(log_ratio) < SMALL_LOG_RATIO, near, far)
    # 0 log 0 = 0: a token that the reference excludes costs the candidate its own mass only.
    return _row_sums(mx.where(p == 0, q, terms))


def compare_logits(
    reference: mx.array, candidate: mx.array, targets: mx.array, *, rows: int = ROWS
) -> Divergence:
    """Compare two `(positions, vocab)` blocks of logits of any float dtype at `(positions,)` target ids.

    Works on `rows` positions at a time: temporaries are some ten times `rows * vocab` f32 values.
    Raises ScoreInvalid where the shapes differ.
    """
    return _compare(reference, candidate, targets, rows, reference_is_logprobs=False)


def compare_with_logprobs(
    reference_logprobs: mx.array, candidate: mx.array, targets: mx.array, *, rows: int = ROWS
) -> Divergence:
    """As `compare_logits`, with the reference given as the f32 log-probabilities of `log_softmax`."""
    return _compare(reference_logprobs, candidate, targets, rows, reference_is_logprobs=True)


def _compare(
    reference: mx.array, candidate: mx.array, targets: mx.array, rows: int, *, reference_is_logprobs: bool
) -> Divergence:
    if reference.shape != candidate.shape or targets.shape != reference.shape[:1] or reference.ndim != 2:
        shapes = f"{reference.shape}, {candidate.shape} and {targets.shape}"
        raise ScoreInvalid("two (positions, vocab) blocks and (positions,) targets were needed", got=shapes)
    parts = []
    for start in range(0, reference.shape[0], rows):
        part = slice(start, start + rows)
        log_p = reference[part] if reference_is_logprobs else log_softmax(reference[part])
        parts.append(_rows(log_p, log_softmax(candidate[part]), targets[part]))
    return joined(parts)


def _rows(log_p: mx.array, log_q: mx.array, targets: mx.array) -> Divergence:
    # Evaluated here, the temporaries of both softmaxes are gone before those of the divergence come.
    mx.eval(log_p, log_q)
    column = targets[:, None]
    arrays = (
        kl_of_logprobs(log_p, log_q),
        -mx.take_along_axis(log_p, column, axis=-1)[:, 0],
        -mx.take_along_axis(log_q, column, axis=-1)[:, 0],
        mx.argmax(log_p, axis=-1) == mx.argmax(log_q, axis=-1),
    )
    mx.eval(*arrays)
    return Divergence(*(np.array(array) for array in arrays))


def joined(parts: list[Divergence]) -> Divergence:
    """The positions of all parts in order; at least one part is needed."""
    return Divergence(
        np.concatenate([p.kl_nats for p in parts]),
        np.concatenate([p.nll_reference for p in parts]),
        np.concatenate([p.nll_candidate for p in parts]),
        np.concatenate([p.top1_agrees for p in parts]),
    )
