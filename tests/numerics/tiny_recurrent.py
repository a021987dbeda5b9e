"""Tiny configs with recurrent layers, alone or beside attention."""

from __future__ import annotations

from typing import Any

from tests.numerics.tiny_base import EXPERTS, GROUPED, LATENT, ROUTED, SCALED, SLIDING_THEN_FULL, WINDOW, tiny
from tests.numerics.tiny_dense import GRANITE
from tests.numerics.tiny_experts import LOCAL

STATES: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
}
SPACE: dict[str, Any] = {"state_size": 16, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True}
DELTA: dict[str, Any] = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
}
CONVOLVED: dict[str, Any] = {"norm_eps": 1e-5, "conv_bias": False, "conv_L_cache": 3, "full_attn_idxs": [1]}
# Kimi counts layers from 1.
KIMI: dict[str, Any] = {
    "linear_attn_config": {
        "kda_layers": [1],
        "full_attn_layers": [2],
        "num_heads": 2,
        "head_dim": 64,
        "short_conv_kernel_size": 4,
    },
    "num_experts": 4,
    "num_experts_per_token": 2,
    "num_shared_experts": 1,
    "moe_intermediate_size": 64,
    "first_k_dense_replace": 1,
}
BAILING: dict[str, Any] = {"num_shared_experts": 1, "first_k_dense_replace": 1, "layer_group_size": 2}

RECURRENT: dict[str, dict[str, Any]] = {
    "baichuan_m1": tiny("baichuan_m1", sliding_window=WINDOW, sliding_window_layers=[0], conv_window=2),
    "bailing_hybrid": tiny(
        "bailing_hybrid",
        group_norm_size=1,
        routed_scaling_factor=1.0,
        **BAILING,
        **GROUPED,
        **LATENT,
        **EXPERTS,
    ),
    "bailing_moe_linear": tiny(
        "bailing_moe_linear", group_norm_size=1, norm_topk_prob=True, **BAILING, **GROUPED, **EXPERTS
    ),
    # mlx-lm tells it from bailing_hybrid by its architectures.
    "bailing_moe_v3": tiny(
        "bailing_hybrid",
        architectures=["BailingMoeV3ForCausalLM"],
        moe_shared_expert_intermediate_size=64,
        **BAILING,
        **GROUPED,
        **LATENT,
        **EXPERTS,
    ),
    "falcon_h1": tiny("falcon_h1", mamba_d_ssm=128, mamba_n_heads=4, mamba_d_head=32, mamba_d_state=16),
    "gear": tiny(
        "gear", num_hidden_layers=3, sliding_window=WINDOW, layer_types=["conv_mixer", *SLIDING_THEN_FULL]
    ),
    "granitemoehybrid": tiny(
        "granitemoehybrid",
        layer_types=["mamba", "attention"],
        shared_intermediate_size=64,
        mamba_n_heads=4,
        mamba_d_head=64,
        mamba_proj_bias=False,
        mamba_d_state=16,
        mamba_d_conv=4,
        mamba_n_groups=1,
        mamba_conv_bias=True,
        **GRANITE,
        **LOCAL,
    ),
    "jamba": tiny(
        "jamba",
        num_hidden_layers=4,
        attn_layer_offset=1,
        attn_layer_period=2,
        expert_layer_offset=1,
        expert_layer_period=2,
        mamba_d_conv=4,
        mamba_d_state=16,
        mamba_expand=2,
        num_experts=4,
        num_experts_per_tok=2,
    ),
    "kimi_linear": tiny(
        "kimi_linear",
        without=["max_position_embeddings"],
        model_max_length=2048,
        kv_lora_rank=64,
        qk_nope_head_dim=32,
        qk_rope_head_dim=32,
        v_head_dim=32,
        **KIMI,
    ),
    "lfm2": tiny(
        "lfm2",
        block_dim=128,
        block_multiple_of=32,
        block_ffn_dim_multiplier=1.0,
        block_auto_adjust_ff_dim=True,
        block_ff_dim=128,
        **CONVOLVED,
    ),
    "lfm2_moe": tiny(
        "lfm2_moe", use_expert_bias=True, num_dense_layers=1, norm_topk_prob=True, **EXPERTS, **CONVOLVED
    ),
    "mamba": {"model_type": "mamba", "time_step_rank": 8, **STATES, **SPACE},
    "mamba2": {
        "model_type": "mamba2",
        "num_heads": 4,
        "head_dim": 32,
        "n_groups": 1,
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "time_step_limit": [0.0, 100.0],
        "time_step_rank": 8,
        **STATES,
        **SPACE,
    },
    # Only the first two of its four layers have a cache.
    "nemotron_h": tiny(
        "nemotron_h",
        num_hidden_layers=4,
        hybrid_override_pattern="M*-E",
        attention_bias=False,
        mlp_bias=False,
        use_bias=False,
        use_conv_bias=True,
        mamba_num_heads=4,
        mamba_head_dim=32,
        mamba_proj_bias=False,
        ssm_state_size=16,
        conv_kernel=4,
        n_groups=1,
        layer_norm_epsilon=1e-5,
        moe_shared_expert_intermediate_size=64,
        **ROUTED,
        **GROUPED,
        **SCALED,
    ),
    "olmo_hybrid": tiny(
        "olmo_hybrid",
        linear_allow_neg_eigval=True,
        tie_word_embeddings=False,
        attention_bias=False,
        layer_types=["linear_attention", "full_attention"],
        **DELTA,
    ),
    "plamo2": {
        "model_type": "plamo2",
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "hidden_size_per_head": 64,
        "mamba_d_state": 16,
        "mamba_num_heads": 2,
        "mamba_step": 2,
        "intermediate_size": 128,
        "vocab_size": 256,
    },
    "qwen3_next": tiny(
        "qwen3_next",
        decoder_sparse_step=1,
        mlp_only_layers=[],
        shared_expert_intermediate_size=64,
        partial_rotary_factor=0.5,
        full_attention_interval=2,
        **DELTA,
        **EXPERTS,
    ),
    "recurrent_gemma": tiny(
        "recurrent_gemma",
        num_hidden_layers=3,
        attention_bias=False,
        conv1d_width=4,
        logits_soft_cap=30.0,
        attention_window_size=WINDOW,
        block_types=["recurrent", "recurrent", "attention"],
    ),
    "rwkv7": {
        "model_type": "rwkv7",
        "vocab_size": 256,
        "hidden_size": 128,
        "intermediate_size": 128,
        "norm_eps": 1e-5,
        "head_dim": 64,
        "num_hidden_layers": 2,
        "a_low_rank_dim": 16,
        "v_low_rank_dim": 16,
        "gate_low_rank_dim": 16,
        "decay_low_rank_dim": 16,
    },
}
