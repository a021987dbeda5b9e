"""Every architecture of mlx-lm decodes several rows as it decodes each alone, or says why it does not."""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from labkit.core.errors import SessionFailed
from labkit.kv.together import why_not_together
from tests.numerics.tiny_configs import METAL_ONLY, TINY
from tests.numerics.tiny_models import tiny_graph
from tests.numerics.together_rows import ENVELOPE, Beside, exact, plain

# Level rows, padded ones, and some so far apart that full layers go by rows where they can.
LENGTHS = ((12, 12, 12), (12, 7, 9), (40, 3, 3))
ALONE: Mapping[str, str] = {
    "llama4": "never: its chunked layers cut their own caches, by the position of one row",
    "deepseek_v41": "never: its layers keep latents of several tokens, by the position of one row",
}
# mlx-lm's own batches are wrong or raise there too.
ONE_POSITION: Mapping[str, str] = {
    "afm7": "never: the last layers take a row's position from the length of the keys",
    "gemma2": "never: its attention has no place for a mask of several rows",
    "gpt_bigcode": "never: it makes one position of all rows",
    "phi3small": "never: its attention adds masks, and has no place for one of several rows",
}
# Which positions it attends to is a choice of the greatest scores, made over padding too.
SPARSE = ("deepseek_v32", "glm_moe_dsa")
SWEPT = [name for name in TINY if name not in METAL_ONLY and name not in ALONE]


@pytest.mark.slow
@pytest.mark.parametrize("name", SWEPT)
def test_rows_together_are_the_rows_alone(name: str) -> None:
    graph = tiny_graph(TINY[name])
    allowed = 0.0 if exact(mx.float32) and name not in SPARSE else ENVELOPE
    for lengths in LENGTHS[:1] if name in ONE_POSITION else LENGTHS:
        beside = Beside(graph)
        beside.add(*((length, plain) for length in lengths))
        beside.step(4)
        assert not beside.together.failures()
        assert max(beside.gaps()) <= allowed
        assert beside.take(1) <= allowed


@pytest.mark.parametrize("name", ONE_POSITION)
def test_other_positions_are_refused(name: str) -> None:
    beside = Beside(tiny_graph(TINY[name]))
    beside.add((12, plain), (12, plain))
    with pytest.raises(SessionFailed, match="rows at one position"):
        beside.add((9, plain))
    beside.step(2)
    assert max(beside.gaps()) <= (0.0 if exact(mx.float32) else ENVELOPE)


@pytest.mark.parametrize("name", ALONE)
def test_a_model_that_decodes_rows_alone_says_which_layer(name: str) -> None:
    caches = make_prompt_cache(tiny_graph(TINY[name]))
    reason = why_not_together(caches, by_name=True)
    assert reason is not None
    assert "of layer 0: its model asks more" in reason
