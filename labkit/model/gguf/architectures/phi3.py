"""Phi 3 and 4: query, key and value in one matrix, gate and up in another, as mlx-lm has them too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labkit.model.gguf.architecture import Architecture, Option
from labkit.model.gguf.architectures.blocks import NORMS, OUTER, RMS_FIELDS, TIED
from labkit.model.gguf.metadata import count
from labkit.model.gguf.rope import LONG, SHORT
from labkit.model.gguf.summary import Summary
from labkit.model.gguf.tensor import Config, Tensor

_WINDOW = "phi3.attention.sliding_window"


def _finish(summary: Summary, _: Config) -> Mapping[str, Any]:
    """The window as transformers states it; llama.cpp and mlx-lm both compute without one."""
    stated = summary.metadata.get(_WINDOW, 0)
    return {
        "sliding_window": count("attention.sliding_window").read("phi3", summary.metadata, {})
        if stated
        else None
    }


PHI3 = Architecture(
    name="phi3",
    fields={
        **RMS_FIELDS,
        "original_max_position_embeddings": count(
            "rope.scaling.original_context_length", "max_position_embeddings"
        ),
    },
    constants={"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "hidden_act": "silu"},
    tensors=OUTER,
    layer_tensors={
        **NORMS,
        "attn_qkv.weight": Tensor("self_attn.qkv_proj.weight", ("qkv_rows", "hidden_size")),
        "attn_output.weight": Tensor("self_attn.o_proj.weight", ("hidden_size", "q_rows")),
        "ffn_up.weight": Tensor("mlp.gate_up_proj.weight", ("gate_up_rows", "hidden_size")),
        "ffn_down.weight": Tensor("mlp.down_proj.weight", ("hidden_size", "intermediate_size")),
    },
    options=(
        TIED,
        Option(tensors={LONG: Tensor(None, ("rotary_pairs",)), SHORT: Tensor(None, ("rotary_pairs",))}),
    ),
    free_head=False,
    partial_rotary=True,
    scalings=frozenset({"longrope"}),
    finish=_finish,
)
