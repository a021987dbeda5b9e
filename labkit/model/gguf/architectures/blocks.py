"""Rows that several architectures share: a transformer's numbers, outer tensors, attention, MLP, experts."""

from __future__ import annotations

from collections.abc import Mapping

from labkit.model.gguf.architecture import Option
from labkit.model.gguf.metadata import Field, count, epsilon, real
from labkit.model.gguf.rope import FREQS
from labkit.model.gguf.tensor import Tensor, unpermute

HIDDEN = ("hidden_size",)
FIELDS: Mapping[str, Field] = {
    "hidden_size": count("embedding_length"),
    "num_hidden_layers": count("block_count"),
    "intermediate_size": count("feed_forward_length"),
    "num_attention_heads": count("attention.head_count"),
    "num_key_value_heads": count("attention.head_count_kv", "num_attention_heads"),
    "max_position_embeddings": count("context_length"),
    "rope_theta": real("rope.freq_base", 10000.0, low=1),
}
RMS_FIELDS: Mapping[str, Field] = {
    **FIELDS,
    "rms_norm_eps": epsilon("attention.layer_norm_rms_epsilon"),
}
OUTER: Mapping[str, Tensor] = {
    "token_embd.weight": Tensor("model.embed_tokens.weight", ("vocab_size", "hidden_size")),
    "output_norm.weight": Tensor("model.norm.weight", HIDDEN),
}
OUTPUT: Mapping[str, Tensor] = {"output.weight": Tensor("lm_head.weight", ("vocab_size", "hidden_size"))}
TIED = Option(tensors=OUTPUT, present={"tie_word_embeddings": False}, absent={"tie_word_embeddings": True})
ROPE_FREQS = Option(tensors={FREQS: Tensor(None, ("rotary_pairs",))})
NORMS: Mapping[str, Tensor] = {
    "attn_norm.weight": Tensor("input_layernorm.weight", HIDDEN),
    "ffn_norm.weight": Tensor("post_attention_layernorm.weight", HIDDEN),
}
ATTENTION: Mapping[str, Tensor] = {
    "attn_q.weight": Tensor("self_attn.q_proj.weight", ("q_rows", "hidden_size")),
    "attn_k.weight": Tensor("self_attn.k_proj.weight", ("kv_rows", "hidden_size")),
    "attn_v.weight": Tensor("self_attn.v_proj.weight", ("kv_rows", "hidden_size")),
    "attn_output.weight": Tensor("self_attn.o_proj.weight", ("hidden_size", "q_rows")),
}
QKV_BIAS: Mapping[str, Tensor] = {
    "attn_q.bias": Tensor("self_attn.q_proj.bias", ("q_rows",)),
    "attn_k.bias": Tensor("self_attn.k_proj.bias", ("kv_rows",)),
    "attn_v.bias": Tensor("self_attn.v_proj.bias", ("kv_rows",)),
}
HEAD_NORMS: Mapping[str, Tensor] = {
    "attn_q_norm.weight": Tensor("self_attn.q_norm.weight", ("head_dim",)),
    "attn_k_norm.weight": Tensor("self_attn.k_norm.weight", ("head_dim",)),
}
# llama.cpp rotates neighbouring rows; its converters interleave the halves that transformers rotates.
INTERLEAVED_ATTENTION: Mapping[str, Tensor] = {
    **ATTENTION,
    "attn_q.weight": Tensor(
        "self_attn.q_proj.weight", ("q_rows", "hidden_size"), unpermute("num_attention_heads")
    ),
    "attn_k.weight": Tensor(
        "self_attn.k_proj.weight", ("kv_rows", "hidden_size"), unpermute("num_key_value_heads")
    ),
}
INTERLEAVED_BIAS: Mapping[str, Tensor] = {
    "attn_q.bias": Tensor("self_attn.q_proj.bias", ("q_rows",), unpermute("num_attention_heads")),
    "attn_k.bias": Tensor("self_attn.k_proj.bias", ("kv_rows",), unpermute("num_key_value_heads")),
    "attn_v.bias": Tensor("self_attn.v_proj.bias", ("kv_rows",)),
    "attn_output.bias": Tensor("self_attn.o_proj.bias", HIDDEN),
}
ATTENTION_BIAS = Option(
    layer_tensors=INTERLEAVED_BIAS, present={"attention_bias": True}, absent={"attention_bias": False}
)
GATED_MLP: Mapping[str, Tensor] = {
    "ffn_gate.weight": Tensor("mlp.gate_proj.weight", ("intermediate_size", "hidden_size")),
    "ffn_up.weight": Tensor("mlp.up_proj.weight", ("intermediate_size", "hidden_size")),
    "ffn_down.weight": Tensor("mlp.down_proj.weight", ("hidden_size", "intermediate_size")),
}
MLP_BIAS = Option(
    layer_tensors={
        "ffn_gate.bias": Tensor("mlp.gate_proj.bias", ("intermediate_size",)),
        "ffn_up.bias": Tensor("mlp.up_proj.bias", ("intermediate_size",)),
        "ffn_down.bias": Tensor("mlp.down_proj.bias", HIDDEN),
    },
    present={"mlp_bias": True},
    absent={"mlp_bias": False},
)


def experts(module: str, number: str, inner: str) -> dict[str, Tensor]:
    """Stacked experts of a gated MLP. module: mlx-lm's; number, inner: config entries."""
    rows, columns = (number, inner, "hidden_size"), (number, "hidden_size", inner)
    return {
        "ffn_gate_exps.weight": Tensor(f"{module}.gate_proj.weight", rows),
        "ffn_up_exps.weight": Tensor(f"{module}.up_proj.weight", rows),
        "ffn_down_exps.weight": Tensor(f"{module}.down_proj.weight", columns),
    }
