"""Tiny configs of models that see: the language model stands in `text_config`."""

from __future__ import annotations

from typing import Any

from tests.numerics.tiny_base import BASE, EXPERTS, SLIDING_THEN_FULL, WINDOW, nested, tiny
from tests.numerics.tiny_dense import DENSE
from tests.numerics.tiny_experts import MIXED
from tests.numerics.tiny_latent import LATENTS
from tests.numerics.tiny_recurrent import DELTA, KIMI, RECURRENT
from tests.numerics.tiny_windowed import WINDOWED

QWEN3_5: dict[str, Any] = {
    **BASE,
    **DELTA,
    "model_type": "qwen3_5_text",
    "full_attention_interval": 2,
    "rope_parameters": {
        "type": "default",
        "mrope_section": [11, 11, 10],
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
    },
}
# Two of its layers read the caches of others.
GEMMA3N: dict[str, Any] = tiny(
    "gemma3n_text",
    num_hidden_layers=4,
    num_kv_shared_layers=2,
    sliding_window=WINDOW,
    layer_types=SLIDING_THEN_FULL * 2,
    rope_local_base_freq=10000.0,
    vocab_size_per_layer_input=256,
    hidden_size_per_layer_input=32,
    final_logit_softcapping=30.0,
    activation_sparsity_pattern=[0.5, 0.0, 0.0, 0.0],
    altup_num_inputs=2,
    altup_coef_clip=120.0,
    altup_correct_scale=True,
    altup_active_idx=0,
    laurel_rank=16,
)
MINIMAX_M3: dict[str, Any] = {
    **BASE,
    "dense_intermediate_size": 128,
    "shared_intermediate_size": 64,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_layer_freq": [0, 1],
    "sparse_attention_config": {
        "sparse_num_index_heads": 1,
        "sparse_index_dim": 64,
        "sparse_block_size": 16,
        "sparse_topk_blocks": 2,
        "sparse_local_block": 1,
        "sparse_attention_freq": [0, 1],
    },
}
KIMI_K3: dict[str, Any] = {
    **BASE,
    **KIMI,
    "activation_situ_beta": 1.0,
    "attn_res_block_size": 2,
    "q_lora_rank": 64,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 32,
    "v_head_dim": 32,
}


def _text(architecture: str, config: dict[str, Any]) -> dict[str, Any]:
    """The outer vocabulary counts for Gemma, not that of the text model."""
    return nested(architecture, {k: v for k, v in config.items() if k != "vocab_size"}, vocab_size=256)


NESTED: dict[str, dict[str, Any]] = {
    "gemma3": _text("gemma3", WINDOWED["gemma3_text"]),
    "gemma3n": nested("gemma3n", GEMMA3N),
    "gemma4": _text("gemma4", WINDOWED["gemma4_text"]),
    "kimi_k25": nested("kimi_k25", LATENTS["deepseek_v3"]),
    "kimi_k3": nested("kimi_k3", KIMI_K3),
    "kimi_vl": nested("kimi_vl", LATENTS["deepseek_v3"]),
    "lfm2-vl": nested("lfm2-vl", RECURRENT["lfm2"]),
    "minimax_m3_vl": nested("minimax_m3_vl", MINIMAX_M3),
    "mistral3": nested("mistral3", WINDOWED["ministral3"]),
    "pixtral": nested("pixtral", DENSE["llama"]),
    "prism_hadamard_qwen35": nested(
        "prism_hadamard_qwen35",
        QWEN3_5,
        schema_version=1,
        tensor_namespace="mlx-lm-text",
        quantization={"bits": 2, "group_size": 128, "mode": "affine"},
        modules=[
            {"path": "model.layers.0.mlp.down_proj", "block": 0, "embedding": False, "dtype": "float16"}
        ],
    ),
    "qwen2_vl": nested("qwen2_vl", DENSE["qwen2"]),
    "qwen3_5": nested("qwen3_5", QWEN3_5),
    "qwen3_5_moe": nested("qwen3_5_moe", {**QWEN3_5, **EXPERTS, "shared_expert_intermediate_size": 64}),
    "qwen3_vl": nested("qwen3_vl", DENSE["qwen3"]),
    "qwen3_vl_moe": nested("qwen3_vl_moe", MIXED["qwen3_moe"]),
}
