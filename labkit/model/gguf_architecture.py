"""Architectures of GGUF files as data: how tensors and config are named here and there.

A further architecture is one more `Architecture` in ARCHITECTURES; the importer (`gguf`) knows none by name.
Source of the names: the GGUF specification (gguf.constants) and transformers' config of each model type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Config = Mapping[str, Any]
Transform = Callable[[np.ndarray, Config], np.ndarray]


@dataclass(frozen=True, slots=True)
class Architecture:
    """One value of `general.architecture`.

    fields: config key -> (metadata key below the architecture's prefix, default); ... as default: required;
    a string default names another config key. constants: config entries that the file does not hold.
    tensors: names outside the layers; layer_tensors: names below `blk.N.` -> below `model.layers.N.`.
    optional: tensors that may be absent, with what their absence puts into the config.
    transforms: tensor name (as in the two tables) -> what is done to the dequantized array.
    allowed: metadata keys and the values under which the import is right; an absent key is right.
    equals: metadata key -> config key whose value it must have where present.
    """

    name: str
    fields: Mapping[str, tuple[str, Any]]
    constants: Mapping[str, Any]
    tensors: Mapping[str, str]
    layer_tensors: Mapping[str, str]
    head_dim_keys: tuple[str, ...] = ("attention.key_length", "rope.dimension_count")
    optional: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    transforms: Mapping[str, Transform] = field(default_factory=dict)
    allowed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    equals: Mapping[str, str] = field(default_factory=dict)


def unpermute(heads_key: str) -> Transform:
    """Undo llama.cpp's interleaving of rotary pairs within each head: `(heads * d, in)` -> the same shape.

    The transform raises ValueError where the rows are not heads * head_dim.
    """

    def transform(array: np.ndarray, config: Config) -> np.ndarray:
        pairs = array.reshape(config[heads_key], config["head_dim"] // 2, 2, *array.shape[1:])
        return pairs.swapaxes(1, 2).reshape(array.shape)

    return transform


LLAMA = Architecture(
    name="llama",
    fields={
        "hidden_size": ("embedding_length", ...),
        "num_hidden_layers": ("block_count", ...),
        "intermediate_size": ("feed_forward_length", ...),
        "num_attention_heads": ("attention.head_count", ...),
        "num_key_value_heads": ("attention.head_count_kv", "num_attention_heads"),
        "rms_norm_eps": ("attention.layer_norm_rms_epsilon", ...),
        "max_position_embeddings": ("context_length", ...),
        "rope_theta": ("rope.freq_base", 10000.0),
    },
    constants={
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
    },
    tensors={
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    },
    layer_tensors={
        "attn_norm.weight": "input_layernorm.weight",
        "attn_q.weight": "self_attn.q_proj.weight",
        "attn_k.weight": "self_attn.k_proj.weight",
        "attn_v.weight": "self_attn.v_proj.weight",
        "attn_output.weight": "self_attn.o_proj.weight",
        "ffn_norm.weight": "post_attention_layernorm.weight",
        "ffn_gate.weight": "mlp.gate_proj.weight",
        "ffn_up.weight": "mlp.up_proj.weight",
        "ffn_down.weight": "mlp.down_proj.weight",
    },
    optional={"output.weight": {"tie_word_embeddings": True}},
    transforms={
        "attn_q.weight": unpermute("num_attention_heads"),
        "attn_k.weight": unpermute("num_key_value_heads"),
    },
    allowed={"rope.scaling.type": ("none",), "expert_count": (0,), "attention.sliding_window": (0,)},
    equals={"rope.dimension_count": "head_dim", "attention.value_length": "head_dim"},
)

ARCHITECTURES: Mapping[str, Architecture] = {a.name: a for a in (LLAMA,)}
