"""Qwen 2 and 3, dense and with experts."""

from __future__ import annotations

from labkit.model.gguf.architecture import Architecture
from labkit.model.gguf.architectures.blocks import (
    ATTENTION,
    GATED_MLP,
    HEAD_NORMS,
    NORMS,
    OUTER,
    OUTPUT,
    QKV_BIAS,
    RMS_FIELDS,
    TIED,
    experts,
)
from labkit.model.gguf.metadata import count
from labkit.model.gguf.tensor import Tensor, as_row

_SCALINGS = frozenset({"linear", "yarn"})
_EXPERT_FIELDS = {
    "num_experts": count("expert_count"),
    "num_experts_per_tok": count("expert_used_count"),
}
_ROUTER = {"ffn_gate_inp.weight": Tensor("mlp.gate.weight", ("num_experts", "hidden_size"))}
_EXPERTS = experts("mlp.switch_mlp", "num_experts", "moe_intermediate_size")
_SHARED = "shared_expert_intermediate_size"

QWEN2 = Architecture(
    name="qwen2",
    fields=RMS_FIELDS,
    constants={"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu"},
    tensors=OUTER,
    layer_tensors={**NORMS, **ATTENTION, **QKV_BIAS, **GATED_MLP},
    options=(TIED,),
    free_head=False,
    scalings=_SCALINGS,
)

QWEN3 = Architecture(
    name="qwen3",
    fields=RMS_FIELDS,
    constants={"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu"},
    tensors=OUTER,
    layer_tensors={**NORMS, **ATTENTION, **HEAD_NORMS, **GATED_MLP},
    options=(TIED,),
    scalings=_SCALINGS,
)

QWEN2_MOE = Architecture(
    name="qwen2moe",
    fields={
        **RMS_FIELDS,
        **_EXPERT_FIELDS,
        "moe_intermediate_size": count("expert_feed_forward_length"),
        _SHARED: count("expert_shared_feed_forward_length", "intermediate_size"),
    },
    constants={
        "architectures": ["Qwen2MoeForCausalLM"],
        "model_type": "qwen2_moe",
        "hidden_act": "silu",
        "norm_topk_prob": False,
        "tie_word_embeddings": False,
    },
    tensors={**OUTER, **OUTPUT},
    layer_tensors={
        **NORMS,
        **ATTENTION,
        **QKV_BIAS,
        **_ROUTER,
        **_EXPERTS,
        "ffn_gate_inp_shexp.weight": Tensor(
            "mlp.shared_expert_gate.weight", ("hidden_size",), as_row, written=(1, "hidden_size")
        ),
        "ffn_gate_shexp.weight": Tensor("mlp.shared_expert.gate_proj.weight", (_SHARED, "hidden_size")),
        "ffn_up_shexp.weight": Tensor("mlp.shared_expert.up_proj.weight", (_SHARED, "hidden_size")),
        "ffn_down_shexp.weight": Tensor("mlp.shared_expert.down_proj.weight", ("hidden_size", _SHARED)),
    },
    experts="num_experts",
    free_head=False,
    allowed={"expert_gating_func": (1,), "expert_weights_norm": (False,), "expert_shared_count": (0, 1)},
)

QWEN3_MOE = Architecture(
    name="qwen3moe",
    fields={
        **RMS_FIELDS,
        **_EXPERT_FIELDS,
        "moe_intermediate_size": count("expert_feed_forward_length"),
    },
    constants={
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_act": "silu",
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
    tensors=OUTER,
    layer_tensors={**NORMS, **ATTENTION, **HEAD_NORMS, **_ROUTER, **_EXPERTS},
    options=(TIED,),
    experts="num_experts",
    allowed={"expert_gating_func": (1,), "expert_weights_norm": (True,)},
)
