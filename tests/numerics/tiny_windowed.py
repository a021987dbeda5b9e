"""Tiny configs with layers that keep a window or a chunk of the past."""

from __future__ import annotations

from typing import Any

from tests.numerics.tiny_base import (
    BASE,
    EXPERTS,
    GROUPED,
    PLAIN_ROPE,
    SCALED,
    SLIDING_THEN_FULL,
    WINDOW,
    nested,
    tiny,
)

SLIDING: dict[str, Any] = {"sliding_window": WINDOW, "layer_types": SLIDING_THEN_FULL}
ROPE_BY_TYPE: dict[str, Any] = dict.fromkeys(SLIDING_THEN_FULL, PLAIN_ROPE)
YARN_BY_POSITION: dict[str, Any] = {
    "rope_theta": 10000.0,
    "llama_4_scaling_beta": 0.1,
    "original_max_position_embeddings": 64,
}

WINDOWED: dict[str, dict[str, Any]] = {
    "afmoe": tiny("afmoe", num_dense_layers=1, num_shared_experts=1, **GROUPED, **EXPERTS, **SLIDING),
    "cohere2": tiny("cohere2", num_hidden_layers=4, sliding_window=WINDOW),
    "exaone4": tiny(
        "exaone4",
        sliding_window_pattern="LG",
        tie_word_embeddings=True,
        rope_scaling={"rope_type": "default"},
        **SLIDING,
    ),
    "exaone_moe": tiny("exaone_moe", is_moe_layer=[False, True], num_shared_experts=1, **EXPERTS, **SLIDING),
    "gemma3_text": tiny("gemma3_text", num_hidden_layers=3, sliding_window=WINDOW, sliding_window_pattern=3),
    # Two head sizes, and two layers that read the caches of others.
    "gemma4_text": tiny(
        "gemma4_text",
        num_hidden_layers=6,
        sliding_window=WINDOW,
        layer_types=SLIDING_THEN_FULL * 3,
        global_head_dim=128,
        num_kv_shared_layers=2,
        vocab_size_per_layer_input=256,
        hidden_size_per_layer_input=32,
    ),
    "gpt_oss": tiny("gpt_oss", sliding_window=WINDOW, num_local_experts=4, num_experts_per_tok=2),
    "iquestloopcoder": tiny("iquestloopcoder", loop_window_size=WINDOW),
    "laguna": tiny(
        "laguna",
        mlp_layer_types=["dense", "sparse"],
        shared_expert_intermediate_size=64,
        rope_parameters=ROPE_BY_TYPE,
        **EXPERTS,
        **SLIDING,
    ),
    "llama4": nested(
        "llama4",
        {
            **BASE,
            "model_type": "llama4_text",
            "num_hidden_layers": 4,
            "attention_bias": False,
            "attention_chunk_size": WINDOW,
            "interleave_moe_layer_step": 2,
            "intermediate_size_mlp": 128,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "rope_scaling": None,
            "use_qk_norm": True,
        },
    ),
    "mellum": tiny(
        "mellum",
        tie_word_embeddings=False,
        norm_topk_prob=True,
        rope_parameters=ROPE_BY_TYPE,
        **EXPERTS,
        **SLIDING,
    ),
    # Keys and values of different sizes, and sinks.
    "mimo_v2_flash": tiny(
        "mimo_v2_flash",
        hybrid_layer_pattern=[1, 0],
        moe_layer_freq=[0, 1],
        add_swa_attention_sink_bias=True,
        add_full_attention_sink_bias=False,
        sliding_window_size=WINDOW,
        n_routed_experts=4,
        n_shared_experts=None,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
        topk_method="noaux_tc",
        scoring_func="sigmoid",
        layernorm_epsilon=1e-5,
        swa_rope_theta=10000.0,
        swa_num_attention_heads=2,
        swa_num_key_value_heads=1,
        v_head_dim=32,
        swa_head_dim=64,
        swa_v_head_dim=32,
        partial_rotary_factor=0.5,
        **GROUPED,
        **SCALED,
    ),
    "ministral3": tiny("ministral3", rope_parameters=YARN_BY_POSITION, **SLIDING),
    "muse_glimmer": tiny("muse_glimmer", **SLIDING),
    "muse_spark": nested(
        "muse_spark",
        {
            **BASE,
            **SLIDING,
            "post_norm_eps": 1e-5,
            "rope_parameters": {"rope_theta": 10000.0},
            "layer_rope_theta": [10000.0, 0],
            "final_logit_softcapping": 20.0,
            "output_multiplier": 1.0,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "moe_hidden_size": 64,
            "moe_intermediate_size": 64,
        },
    ),
    "olmo3": tiny("olmo3", **SLIDING),
    "plamo3": tiny("plamo3", num_hidden_layers=4, window_size=WINDOW, sliding_window_pattern=2),
    "spark2_5": tiny("spark2_5", rope_parameters=ROPE_BY_TYPE, **SLIDING),
    "step3p5": tiny(
        "step3p5",
        num_attention_groups=1,
        moe_num_experts=4,
        moe_top_k=2,
        moe_intermediate_size=64,
        share_expert_dim=64,
        moe_layers_enum="1",
        **SLIDING,
    ),
}
