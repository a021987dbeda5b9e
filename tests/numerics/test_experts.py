"""Models with experts on a CPU: what would fail in the first prefill is refused when it is loaded."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx import nn

from labkit.core.errors import ModelUnavailable
from labkit.model.experts import check_experts
from tests.numerics.tiny_configs import TINY
from tests.numerics.tiny_models import tiny_graph


def packable(_: str, module: Any) -> bool:
    return hasattr(module, "to_quantized") and module.weight.shape[-1] % 32 == 0


def test_unpacked_experts_of_16_bits_are_refused_by_name() -> None:
    graph = tiny_graph(TINY["mixtral"], mx.bfloat16)
    with pytest.raises(ModelUnavailable, match=r"bfloat16 in model\.layers\.\d+\.block_sparse_moe"):
        check_experts(graph, "tiny")


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe", "llama"])
def test_f32_experts_pass(name: str) -> None:
    check_experts(tiny_graph(TINY[name]), "tiny")


def test_packed_experts_pass_whatever_their_scales() -> None:
    graph = tiny_graph(TINY["qwen3_moe"], mx.bfloat16)
    nn.quantize(graph, group_size=32, bits=4, class_predicate=packable)
    check_experts(graph, "tiny")
    logits = graph(mx.array([[1, 2, 3]]))
    assert not mx.any(mx.isnan(logits))
