"""StarCoder 2: layer norms and linear layers with biases, an MLP without a gate."""

from __future__ import annotations

from labkit.model.gguf.architecture import Architecture
from labkit.model.gguf.architectures.blocks import ATTENTION, FIELDS, HIDDEN, NORMS, OUTER, QKV_BIAS, TIED
from labkit.model.gguf.metadata import epsilon
from labkit.model.gguf.tensor import Tensor

STARCODER2 = Architecture(
    name="starcoder2",
    fields={**FIELDS, "norm_epsilon": epsilon("attention.layer_norm_epsilon")},
    constants={
        "architectures": ["Starcoder2ForCausalLM"],
        "model_type": "starcoder2",
        "hidden_act": "gelu_pytorch_tanh",
        "use_bias": True,
    },
    tensors={**OUTER, "output_norm.bias": Tensor("model.norm.bias", HIDDEN)},
    layer_tensors={
        **NORMS,
        "attn_norm.bias": Tensor("input_layernorm.bias", HIDDEN),
        "ffn_norm.bias": Tensor("post_attention_layernorm.bias", HIDDEN),
        **ATTENTION,
        **QKV_BIAS,
        "attn_output.bias": Tensor("self_attn.o_proj.bias", HIDDEN),
        "ffn_up.weight": Tensor("mlp.c_fc.weight", ("intermediate_size", "hidden_size")),
        "ffn_up.bias": Tensor("mlp.c_fc.bias", ("intermediate_size",)),
        "ffn_down.weight": Tensor("mlp.c_proj.weight", ("hidden_size", "intermediate_size")),
        "ffn_down.bias": Tensor("mlp.c_proj.bias", HIDDEN),
    },
    options=(TIED,),
    free_head=False,
)
