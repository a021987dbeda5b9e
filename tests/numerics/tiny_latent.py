"""Tiny configs whose caches hold latents (multi-head latent attention), with and without an index."""

from __future__ import annotations

from typing import Any

from tests.numerics.tiny_base import GROUPED, LATENT, PLAIN_ROPE, ROUTED, SCALED, WINDOW, tiny
from tests.numerics.tiny_dense import MINICPM
from tests.numerics.tiny_windowed import YARN_BY_POSITION

OWN_HEADS = ("head_dim",)
# Fewer positions than the longer prompts have, so that the choice of positions is made.
INDEX: dict[str, Any] = {"index_head_dim": 64, "index_n_heads": 2, "index_topk": 24}
LONGCAT: dict[str, Any] = {
    "attention_method": "MLA",
    "zero_expert_type": "identity",
    "ffn_hidden_size": 128,
    "moe_topk": 2,
    "expert_ffn_hidden_size": 64,
    "n_routed_experts": 4,
    "zero_expert_num": 2,
    "num_layers": 2,
    "routed_scaling_factor": 1.0,
    "mla_scale_q_lora": True,
    "mla_scale_kv_lora": True,
    "attention_bias": False,
}
LONGCAT_WITHOUT = ("num_hidden_layers", "head_dim", "intermediate_size")

LATENTS: dict[str, dict[str, Any]] = {
    "deepseek_v2": tiny(
        "deepseek_v2",
        without=OWN_HEADS,
        rope_scaling={
            "type": "yarn",
            "factor": 2.0,
            "mscale": 0.7,
            "mscale_all_dim": 0.7,
            "original_max_position_embeddings": 1024,
        },
        **LATENT,
        **ROUTED,
    ),
    "deepseek_v3": tiny("deepseek_v3", without=OWN_HEADS, **LATENT, **ROUTED, **GROUPED),
    "deepseek_v32": tiny("deepseek_v32", without=OWN_HEADS, **LATENT, **ROUTED, **GROUPED, **INDEX),
    # A window, latents of four tokens each, and an index over them.
    "deepseek_v41": {
        "model_type": "deepseek_v41",
        "vocab_size": 256,
        "hidden_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "head_dim": 64,
        "q_lora_rank": 64,
        "qk_rope_head_dim": 32,
        "o_groups": 2,
        "o_lora_rank": 32,
        "moe_intermediate_size": 64,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": WINDOW,
        "compress_ratios": [0, 4, 4],
        "kv_source_layer_ids": [1, 2],
        "index_source_layer_ids": [1, 2],
        "index_n_heads": 2,
        "index_head_dim": 64,
        "index_topk": 8,
        "hc_mult": 2,
        "max_position_embeddings": 2048,
        "rope_scaling": {
            "type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 512,
            "beta_fast": 32,
            "beta_slow": 1,
        },
    },
    "glm4_moe_lite": tiny("glm4_moe_lite", without=OWN_HEADS, **LATENT, **ROUTED, **GROUPED),
    "glm_moe_dsa": tiny(
        "glm_moe_dsa",
        without=OWN_HEADS,
        topk_method="noaux_tc",
        scoring_func="sigmoid",
        moe_layer_freq=1,
        rope_parameters=PLAIN_ROPE,
        attention_bias=False,
        **LATENT,
        **ROUTED,
        **GROUPED,
        **SCALED,
        **INDEX,
    ),
    "longcat_flash": tiny("longcat_flash", without=LONGCAT_WITHOUT, **LATENT, **LONGCAT),
    "longcat_flash_ngram": tiny("longcat_flash_ngram", without=LONGCAT_WITHOUT, **LATENT, **LONGCAT),
    "minicpm3": tiny(
        "minicpm3",
        without=OWN_HEADS,
        rope_scaling={
            "type": "longrope",
            "short_factor": [1.0] * 16,
            "long_factor": [1.0] * 16,
            "original_max_position_embeddings": 2048,
        },
        **MINICPM,
        **LATENT,
    ),
    "mistral4": tiny(
        "mistral4",
        without=OWN_HEADS,
        rope_parameters={"type": "yarn", "factor": 1.0, **YARN_BY_POSITION},
        **LATENT,
        **ROUTED,
        **GROUPED,
        **SCALED,
    ),
    "youtu_llm": tiny("youtu_llm", without=OWN_HEADS, **LATENT),
}
