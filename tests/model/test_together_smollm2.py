"""Rows that decode together on SmolLM2 in f32: how far they are from each row alone, on this BLAS."""

from __future__ import annotations

from typing import Any

import pytest

from labkit.engine.model import Model
from tests.numerics.together_rows import ENVELOPE, STEP, Beside, codes, plain

LENGTHS = {"level": (64,) * 8, "padded": (64, 50, 71, 40), "by rows": (90, 5, 9, 12)}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_logits_stay_in_the_envelope(smollm2: Model, lengths: tuple[int, ...]) -> None:
    beside = Beside(smollm2.graph)
    beside.add(*((length, plain) for length in lengths))
    beside.step(6)
    # Measured with MKL: 4e-5 to 9.6e-5 of logits up to 20, after 30 layers.
    assert max(beside.gaps()) <= 2 * ENVELOPE


@pytest.mark.parametrize("make", [codes(8), codes(8, 4)], ids=["8", "8 and 4"])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_codes_stay_in_the_envelope(smollm2: Model, lengths: tuple[int, ...], make: Any) -> None:
    """Of one forward, from equal codes: a code that falls to the other side moves all that come after it."""
    beside = Beside(smollm2.graph)
    beside.add(*((length, make) for length in lengths))
    beside.step()
    share, steps = beside.codes_that_differ()
    # Keys and values of four rows differ by up to 3.2e-5, a step of 8 bits is a thousand times that; in the
    # later of 30 layers the codes of the earlier ones count too. Measured: at most 3e-5 of all, 1.02 steps.
    assert share <= 1e-3
    assert steps <= STEP
