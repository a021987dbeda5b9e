"""Command R and Cohere 2: attention and MLP side by side, scaled logits, rows rotated as they lie."""

from __future__ import annotations

from labkit.model.gguf.architecture import Architecture, Option
from labkit.model.gguf.architectures.blocks import ATTENTION, FIELDS, GATED_MLP, HIDDEN, OUTER
from labkit.model.gguf.metadata import count, epsilon, real
from labkit.model.gguf.tensor import Tensor

_FIELDS = {
    **FIELDS,
    "layer_norm_eps": epsilon("attention.layer_norm_epsilon"),
    "logit_scale": real("logit_scale"),
}
_LAYER = {"attn_norm.weight": Tensor("input_layernorm.weight", HIDDEN), **ATTENTION, **GATED_MLP}

COMMAND_R = Architecture(
    name="command-r",
    fields=_FIELDS,
    constants={
        "architectures": ["CohereForCausalLM"],
        "model_type": "cohere",
        "attention_bias": False,
        "layer_norm_bias": False,
        "tie_word_embeddings": True,
    },
    tensors=OUTER,
    layer_tensors=_LAYER,
    options=(
        Option(
            layer_tensors={
                "attn_q_norm.weight": Tensor(
                    "self_attn.q_norm.weight", ("num_attention_heads", "head_dim"), packable=False
                ),
                "attn_k_norm.weight": Tensor(
                    "self_attn.k_norm.weight", ("num_key_value_heads", "head_dim"), packable=False
                ),
            },
            present={"use_qk_norm": True},
            absent={"use_qk_norm": False},
        ),
    ),
    free_head=False,
)

COHERE2 = Architecture(
    name="cohere2",
    fields={**_FIELDS, "sliding_window": count("attention.sliding_window")},
    constants={
        "architectures": ["Cohere2ForCausalLM"],
        "model_type": "cohere2",
        "attention_bias": False,
        "layer_norm_bias": False,
        "sliding_window_pattern": 4,
        "tie_word_embeddings": True,
    },
    tensors=OUTER,
    layer_tensors=_LAYER,
    free_head=False,
    allowed={"attention.sliding_window_pattern": (4,)},
)
