"""`mixed` on the bundled models against mlx-optiq 0.7.7, bit for bit, on the BLAS of this session.

mlx-optiq runs in a process of its own; see tests/optiq_oracle.py for what that needs. Its answers on tiny
models are written down, so that a plain clone has them: tests/numerics/test_mixed.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from mlx_lm.models.cache import make_prompt_cache

from labkit.engine.model import Model
from labkit.kv.mixed import Mixed
from tests.kv_runs import run, setting
from tests.optiq_oracle import MISSING, Case, ask, available
from tests.oracle import random_prompt

pytestmark = pytest.mark.skipif(not available(), reason=MISSING)
WIDTHS = (8, 4, 6, 8, 5, 3, 8, 2)
WINDOW = 512
TOKENS = 6


def every(layers: int, bits: int) -> tuple[tuple[int, int, int], ...]:
    return tuple((layer, bits, 64) for layer in range(layers))


def various(layers: int) -> tuple[tuple[int, int, int], ...]:
    """Widths and groups in turn; every fifth layer is not listed."""
    return tuple(
        (layer, WIDTHS[layer % len(WIDTHS)], (64, 32)[layer % 2]) for layer in range(layers) if layer % 5 != 3
    )


def assert_equals_mlx_optiq(model: Model, path: Path, cases: list[Case]) -> None:
    layers = len(make_prompt_cache(model.graph))
    for case, want in zip(cases, ask(cases), strict=True):
        scheme = Mixed(setting(case, layers))
        found = run(model.graph, scheme, case.prompt, chunk=case.chunk, tokens=case.tokens)
        assert found.tokens == want.tokens, case.layers
        assert found.digest() == want.digest(), case.layers


def test_smollm2(smollm2: Model, smollm2_path: Path) -> None:
    layers = len(smollm2.graph.layers)
    cases = [
        Case(str(smollm2_path), stored, tuple(random_prompt(smollm2, length)), 256, TOKENS, start)
        for stored, length, start in (
            (various(layers), 300, 0),
            (various(layers), 100, 102),
            (every(layers, 8), 40, 0),
        )
    ]
    assert_equals_mlx_optiq(smollm2, smollm2_path, cases)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["affine", "mixed"])
def test_gemma3(gemma3: Model, gemma3_path: Path, which: str) -> None:
    """Within the window, passing it while decoding, and past it; sliding and full layers."""
    layers = len(gemma3.graph.layers)
    asked = {
        "affine": ((every(layers, 8), 40, 0), (every(layers, 4), WINDOW - 2, 0)),
        "mixed": ((various(layers), WINDOW + 88, 0), (various(layers), WINDOW - 3, WINDOW)),
    }
    cases = [
        Case(str(gemma3_path), stored, tuple(random_prompt(gemma3, length)), 256, TOKENS, start)
        for stored, length, start in asked[which]
    ]
    assert_equals_mlx_optiq(gemma3, gemma3_path, cases)
