"""StableLM: layer norms with biases, a part of each head rotated."""

from __future__ import annotations

from labkit.model.gguf.architecture import Architecture, Option
from labkit.model.gguf.architectures.blocks import (
    ATTENTION,
    FIELDS,
    GATED_MLP,
    HIDDEN,
    OUTER,
    OUTPUT,
    QKV_BIAS,
)
from labkit.model.gguf.metadata import epsilon
from labkit.model.gguf.tensor import Tensor

STABLELM = Architecture(
    name="stablelm",
    fields={**FIELDS, "layer_norm_eps": epsilon("attention.layer_norm_epsilon")},
    constants={
        "architectures": ["StableLmForCausalLM"],
        "model_type": "stablelm",
        "hidden_act": "silu",
        "qk_layernorm": False,
        "tie_word_embeddings": False,
    },
    tensors={**OUTER, **OUTPUT, "output_norm.bias": Tensor("model.norm.bias", HIDDEN)},
    layer_tensors={
        "attn_norm.weight": Tensor("input_layernorm.weight", HIDDEN),
        "attn_norm.bias": Tensor("input_layernorm.bias", HIDDEN),
        **ATTENTION,
        **GATED_MLP,
    },
    options=(
        Option(layer_tensors=QKV_BIAS, present={"use_qkv_bias": True}, absent={"use_qkv_bias": False}),
        Option(
            layer_tensors={
                "ffn_norm.weight": Tensor("post_attention_layernorm.weight", HIDDEN),
                "ffn_norm.bias": Tensor("post_attention_layernorm.bias", HIDDEN),
            },
            present={"use_parallel_residual": False},
            absent={"use_parallel_residual": True},
        ),
    ),
    free_head=False,
    partial_rotary=True,
)
