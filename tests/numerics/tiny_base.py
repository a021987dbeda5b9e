"""What most tiny configs share: sizes that a layer can have and a CPU can run in milliseconds."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

# Prompts of the sweep pass it.
WINDOW = 32
SLIDING_THEN_FULL = ["sliding_attention", "full_attention"]
BASE: dict[str, Any] = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "rms_norm_eps": 1e-5,
    "vocab_size": 256,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
}
GPT: dict[str, Any] = {
    "n_embd": 128,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 2048,
    "vocab_size": 256,
    "layer_norm_epsilon": 1e-5,
}
EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
# The names that DeepSeek gave them; the first layer is dense.
ROUTED: dict[str, Any] = {
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "first_k_dense_replace": 1,
}
GROUPED: dict[str, Any] = {"n_group": 1, "topk_group": 1}
SCALED: dict[str, Any] = {"routed_scaling_factor": 1.0, "norm_topk_prob": True}
LATENT: dict[str, Any] = {
    "kv_lora_rank": 64,
    "q_lora_rank": 64,
    "qk_rope_head_dim": 32,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
}
PLAIN_ROPE: dict[str, Any] = {"rope_type": "default", "rope_theta": 10000.0}


def tiny(architecture: str, *, without: Collection[str] = (), **settings: Any) -> dict[str, Any]:
    """A config of the shared sizes, without some keys and with others."""
    kept = {key: value for key, value in BASE.items() if key not in without}
    return {"model_type": architecture, **kept, **settings}


def nested(architecture: str, text: dict[str, Any], **outer: Any) -> dict[str, Any]:
    """A config whose language model stands in `text_config`."""
    return {"model_type": architecture, **outer, "text_config": text}
