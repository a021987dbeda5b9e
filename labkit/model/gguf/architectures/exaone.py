"""EXAONE 3: a Llama by other names, its rows not interleaved."""

from __future__ import annotations

from collections.abc import Mapping

from labkit.model.gguf.architecture import Architecture
from labkit.model.gguf.architectures.blocks import FIELDS, HIDDEN, ROPE_FREQS, TIED
from labkit.model.gguf.metadata import epsilon
from labkit.model.gguf.summary import Summary
from labkit.model.gguf.tensor import Config, Tensor

_ATTENTION = "attn.attention"


def _finish(_: Summary, config: Config) -> Mapping[str, int]:
    return {"num_layers": config["num_hidden_layers"]}


EXAONE = Architecture(
    name="exaone",
    fields={**FIELDS, "layer_norm_epsilon": epsilon("attention.layer_norm_rms_epsilon")},
    constants={
        "architectures": ["ExaoneForCausalLM"],
        "model_type": "exaone",
        "activation_function": "silu",
        "attention_bias": False,
        "mlp_bias": False,
    },
    tensors={
        "token_embd.weight": Tensor("transformer.wte.weight", ("vocab_size", "hidden_size")),
        "output_norm.weight": Tensor("transformer.ln_f.weight", HIDDEN),
    },
    layer_tensors={
        "attn_norm.weight": Tensor("ln_1.weight", HIDDEN),
        "ffn_norm.weight": Tensor("ln_2.weight", HIDDEN),
        "attn_q.weight": Tensor(f"{_ATTENTION}.q_proj.weight", ("q_rows", "hidden_size")),
        "attn_k.weight": Tensor(f"{_ATTENTION}.k_proj.weight", ("kv_rows", "hidden_size")),
        "attn_v.weight": Tensor(f"{_ATTENTION}.v_proj.weight", ("kv_rows", "hidden_size")),
        "attn_output.weight": Tensor(f"{_ATTENTION}.out_proj.weight", ("hidden_size", "q_rows")),
        "ffn_gate.weight": Tensor("mlp.c_fc_0.weight", ("intermediate_size", "hidden_size")),
        "ffn_up.weight": Tensor("mlp.c_fc_1.weight", ("intermediate_size", "hidden_size")),
        "ffn_down.weight": Tensor("mlp.c_proj.weight", ("hidden_size", "intermediate_size")),
    },
    layers="transformer.h.",
    options=(TIED, ROPE_FREQS),
    free_head=False,
    scalings=frozenset({"linear", "yarn", "llama3"}),
    finish=_finish,
)
