"""OLMo 2: norms behind attention and MLP, and over the whole of query and key."""

from __future__ import annotations

from labkit.model.gguf.architecture import Architecture
from labkit.model.gguf.architectures.blocks import ATTENTION, GATED_MLP, HIDDEN, OUTER, RMS_FIELDS, TIED
from labkit.model.gguf.tensor import Tensor

OLMO2 = Architecture(
    name="olmo2",
    fields=RMS_FIELDS,
    constants={
        "architectures": ["Olmo2ForCausalLM"],
        "model_type": "olmo2",
        "hidden_act": "silu",
        "attention_bias": False,
    },
    tensors=OUTER,
    layer_tensors={
        **ATTENTION,
        "attn_q_norm.weight": Tensor("self_attn.q_norm.weight", ("q_rows",)),
        "attn_k_norm.weight": Tensor("self_attn.k_norm.weight", ("kv_rows",)),
        "post_attention_norm.weight": Tensor("post_attention_layernorm.weight", HIDDEN),
        "post_ffw_norm.weight": Tensor("post_feedforward_layernorm.weight", HIDDEN),
        **GATED_MLP,
    },
    options=(TIED,),
    scalings=frozenset({"linear", "yarn"}),
)
