"""KL, NLL and agreement of two blocks of logits against float64 numpy."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from labkit.core.errors import ScoreInvalid
from labkit.numerics.kl import compare_logits, compare_with_logprobs, kl_of_logprobs, log_softmax

VOCABS = (2, 255, 256, 257, 49_152)


def log_softmax64(logits: mx.array) -> np.ndarray:
    wide = np.array(logits.astype(mx.float32)).astype(np.float64)
    shifted = wide - wide.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def random_logits(
    rows: int, vocab: int, change: float, dtype: mx.Dtype = mx.float32
) -> tuple[mx.array, mx.array, mx.array]:
    rng = np.random.default_rng(vocab)
    reference = rng.normal(size=(rows, vocab)) * 4
    candidate = reference + rng.normal(size=(rows, vocab)) * change
    targets = rng.integers(0, vocab, rows)
    return mx.array(reference).astype(dtype), mx.array(candidate).astype(dtype), mx.array(targets)


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
@pytest.mark.parametrize("vocab", VOCABS)
def test_agrees_with_float64(vocab: int, dtype: mx.Dtype) -> None:
    reference, candidate, targets = random_logits(70, vocab, 1.0, dtype)
    found = compare_logits(reference, candidate, targets)
    log_p, log_q = log_softmax64(reference), log_softmax64(candidate)
    at = (np.arange(70), np.array(targets))
    # Logits reach 20, so one f32 rounding is 1e-6; a few of them meet in a log-probability.
    np.testing.assert_allclose(found.nll_reference, -log_p[at], atol=1e-5)
    np.testing.assert_allclose(found.nll_candidate, -log_q[at], atol=1e-5)
    # Relative: KL sums p * log ratio, and a log ratio carries the same few roundings.
    expected = (np.exp(log_p) * (log_p - log_q)).sum(axis=-1)
    np.testing.assert_allclose(found.kl_nats, expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(found.top1_agrees, log_p.argmax(-1) == log_q.argmax(-1))
    assert found.kl_nats.dtype == np.float32


@pytest.mark.parametrize("change", [1e-5, 1e-3])
def test_tiny_divergence_is_not_drowned_in_rounding(change: float) -> None:
    reference, candidate, targets = random_logits(32, 49_152, change)
    log_p, log_q = log_softmax64(reference), log_softmax64(candidate)
    expected = (np.exp(log_p) * (log_p - log_q)).sum(axis=-1)
    found = compare_logits(reference, candidate, targets)
    # Log-probabilities rounded to 1e-6 move each log ratio r by 1e-6, so p r^2 / 2 by r * 1e-6; summing
    # p log(p/q) plainly would be off by 1e-6 itself, a thousand times the divergence at 1e-5.
    np.testing.assert_allclose(found.kl_nats, expected, atol=3e-6 * change, rtol=1e-4)
    assert (found.kl_nats >= 0).all()


def test_identical_logits_give_exactly_zero() -> None:
    reference, _, targets = random_logits(65, 1000, 0.0)
    found = compare_logits(reference, mx.array(reference), targets)
    assert (found.kl_nats == 0).all()
    assert (found.nll_reference == found.nll_candidate).all()
    assert found.top1_agrees.all()


def test_kl_is_not_symmetric() -> None:
    p, q = mx.array([[0.0, 3.0]]), mx.array([[1.0, 0.0]])
    log_p, log_q = log_softmax64(p)[0], log_softmax64(q)[0]
    forward = compare_logits(p, q, mx.array([0])).kl_nats[0]
    assert forward == pytest.approx(np.sum(np.exp(log_p) * (log_p - log_q)), rel=1e-6)
    assert forward != pytest.approx(np.sum(np.exp(log_q) * (log_q - log_p)), rel=1e-2)


@pytest.mark.parametrize("rows", [1, 7, 64, 1000])
def test_row_blocks_change_nothing(rows: int) -> None:
    reference, candidate, targets = random_logits(130, 300, 1.0)
    whole, blocks = (compare_logits(reference, candidate, targets, rows=n) for n in (130, rows))
    np.testing.assert_array_equal(blocks.kl_nats, whole.kl_nats)
    np.testing.assert_array_equal(blocks.nll_candidate, whole.nll_candidate)
    assert blocks.positions == 130


def test_temporaries_are_bounded_by_the_row_block() -> None:
    reference, candidate, targets = random_logits(512, 8192, 1.0)
    mx.eval(reference, candidate, targets)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    compare_logits(reference, candidate, targets, rows=16)
    block_bytes = 16 * 8192 * 4
    # Some ten f32 temporaries of a row block; those of all 512 rows would be 32 times as much.
    assert mx.get_peak_memory() - before < 16 * block_bytes


def test_stored_reference_gives_the_same_bits() -> None:
    reference, candidate, targets = random_logits(70, 1000, 1.0)
    streamed = compare_logits(reference, candidate, targets)
    stored = compare_with_logprobs(log_softmax(reference), candidate, targets)
    for name in ("kl_nats", "nll_reference", "nll_candidate", "top1_agrees"):
        np.testing.assert_array_equal(getattr(stored, name), getattr(streamed, name))


def test_excluded_tokens() -> None:
    lowest = -float("inf")
    allowed, excluded = mx.array([[1.0, 2.0, 3.0]]), mx.array([[1.0, 2.0, lowest]])
    # KL(reference || candidate) is infinite only where the candidate excludes what the reference allows.
    assert np.isinf(compare_logits(allowed, excluded, mx.array([0])).kl_nats[0])
    found = compare_logits(excluded, allowed, mx.array([0])).kl_nats[0]
    log_ratio = np.log(1 + np.exp(3) / (np.exp(1) + np.exp(2)))
    assert found == pytest.approx(log_ratio, rel=1e-6)
    assert compare_logits(excluded, excluded, mx.array([0])).kl_nats[0] == 0


def test_far_apart_distributions_do_not_overflow() -> None:
    reference, candidate = mx.array([[0.0, 300.0]]), mx.array([[300.0, 0.0]])
    assert kl_of_logprobs(log_softmax(reference), log_softmax(candidate)).item() == pytest.approx(300.0)


def test_shapes_must_match() -> None:
    block = mx.zeros((2, 5))
    for other, targets in ((mx.zeros((2, 6)), mx.zeros(2)), (block, mx.zeros(3)), (block, block)):
        with pytest.raises(ScoreInvalid, match=r"\(2, 5\)"):
            compare_logits(block, other, targets.astype(mx.int32))
