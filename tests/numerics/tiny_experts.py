"""Tiny configs with experts whose every layer is full."""

from __future__ import annotations

from typing import Any

from tests.numerics.tiny_base import EXPERTS, GROUPED, ROUTED, SCALED, tiny
from tests.numerics.tiny_dense import GRANITE, UNTIED

LOCAL: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2}
SHARED: dict[str, Any] = {"num_shared_experts": 1, "norm_topk_prob": True}

MIXED: dict[str, dict[str, Any]] = {
    "Klear": tiny(
        "Klear",
        attention_bias=False,
        mlp_only_layers=[0],
        decoder_sparse_step=1,
        n_shared_experts=1,
        norm_topk_prob=True,
        **EXPERTS,
    ),
    "bailing_moe": tiny("bailing_moe", first_k_dense_replace=1, **SHARED, **GROUPED, **EXPERTS),
    "dbrx": {
        "model_type": "dbrx",
        "vocab_size": 256,
        "d_model": 128,
        "n_layers": 2,
        "n_heads": 2,
        "max_seq_len": 2048,
        "ffn_config": {"ffn_hidden_size": 128, "moe_num_experts": 4, "moe_top_k": 2},
        "attn_config": {"kv_n_heads": 1, "clip_qkv": 8.0, "rope_theta": 10000.0},
    },
    "deepseek": tiny("deepseek", **ROUTED),
    "dots1": tiny("dots1", **ROUTED, **GROUPED, **SCALED),
    "ernie4_5_moe": tiny(
        "ernie4_5_moe",
        use_bias=False,
        tie_word_embeddings=True,
        moe_num_experts=4,
        moe_layer_start_index=1,
        moe_intermediate_size=64,
        moe_k=2,
        moe_num_shared_experts=1,
    ),
    "glm4_moe": tiny(
        "glm4_moe",
        rope_scaling=None,
        use_qk_norm=True,
        attention_bias=False,
        partial_rotary_factor=0.5,
        **UNTIED,
        **ROUTED,
        **GROUPED,
        **SCALED,
    ),
    "granitemoe": tiny("granitemoe", **GRANITE, **LOCAL),
    # The second layer reads the keys and values of the first.
    "hunyuan": tiny(
        "hunyuan",
        attention_bias=False,
        moe_topk=2,
        num_experts=4,
        num_shared_expert=1,
        use_mixed_mlp_moe=True,
        use_qk_norm=True,
        use_cla=True,
        cla_share_factor=2,
        rope_scaling={"type": "dynamic", "factor": 1.0, "alpha": 1000.0},
    ),
    "minimax": tiny("minimax", shared_intermediate_size=0, rotary_dim=32, **LOCAL),
    "mixtral": tiny("mixtral", **LOCAL),
    "olmoe": tiny("olmoe", **EXPERTS),
    "phimoe": tiny(
        "phimoe",
        rope_scaling={
            "type": "longrope",
            "long_factor": [1.0] * 32,
            "short_factor": [1.0] * 32,
            "long_mscale": 1.0,
            "short_mscale": 1.0,
        },
        **LOCAL,
    ),
    "phixtral": {
        "model_type": "phixtral",
        "num_vocab": 256,
        "model_dim": 128,
        "num_heads": 2,
        "num_layers": 2,
        "n_positions": 2048,
        "rotary_dim": 32,
        **LOCAL,
    },
    "qwen2_moe": tiny("qwen2_moe", shared_expert_intermediate_size=64, **EXPERTS),
    "qwen3_moe": tiny(
        "qwen3_moe",
        num_hidden_layers=3,
        decoder_sparse_step=2,
        mlp_only_layers=[],
        norm_topk_prob=True,
        **UNTIED,
        **EXPERTS,
    ),
    "solar_open": tiny("solar_open", partial_rotary_factor=1.0, **UNTIED, **ROUTED, **GROUPED, **SCALED),
}
