"""Tiny configs whose every layer is full and dense."""

from __future__ import annotations

from typing import Any

from tests.numerics.tiny_base import GPT, tiny

# Their settings have the common names and nothing else is required.
COMMON = ("gemma", "gemma2", "hunyuan_v1_dense", "internlm2", "internlm3", "llama", "mimo", "nanochat")
COMMON_TOO = ("olmo2", "phi3", "qwen2", "seed_oss", "starcoder2", "talkie", "telechat3")
GRANITE: dict[str, Any] = {
    "logits_scaling": 8.0,
    "attention_multiplier": 0.1,
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.2,
    "attention_bias": False,
}
NO_BIAS: dict[str, Any] = {"attention_bias": False, "mlp_bias": False}
UNTIED: dict[str, Any] = {"tie_word_embeddings": False}
MINICPM: dict[str, Any] = {"dim_model_base": 64, "scale_depth": 1.4, "scale_emb": 12}

DENSE: dict[str, dict[str, Any]] = {
    **{name: tiny(name) for name in (*COMMON, *COMMON_TOO)},
    "afm7": {
        "model_type": "afm7",
        "vocab_size": 256,
        "hidden_dim": 128,
        "num_layers": 2,
        "num_kv_reuse_layers": 1,
        "num_heads": 2,
        "num_kv_heads": 1,
    },
    "apertus": tiny("apertus", post_norm=False, qk_norm=True, **NO_BIAS, **UNTIED),
    "bitnet": tiny("bitnet"),
    "cohere": tiny("cohere", layer_norm_eps=1e-5, use_qk_norm=True),
    "ernie4_5": tiny("ernie4_5", use_bias=False, tie_word_embeddings=True),
    "exaone": tiny("exaone", without=["num_hidden_layers"], num_layers=2, layer_norm_epsilon=1e-5),
    "glm": tiny("glm"),
    "glm4": tiny("glm4", attention_bias=False, partial_rotary_factor=0.5),
    "gpt2": {"model_type": "gpt2", "n_ctx": 2048, **GPT},
    "gpt_bigcode": {"model_type": "gpt_bigcode", "n_inner": 128, **GPT},
    "gpt_neox": tiny("gpt_neox", layer_norm_eps=1e-5, rotary_emb_base=10000, rotary_pct=0.25),
    "gptj": {"model_type": "gptj", "rotary_dim": 16, **GPT},
    "granite": tiny("granite", mlp_bias=False, **GRANITE),
    "helium": tiny("helium", **NO_BIAS, **UNTIED),
    "lille-130m": {
        "model_type": "lille-130m",
        "block_size": 2048,
        "layer_norm_eps": 1e-5,
        "n_embd": 128,
        "n_head": 2,
        "n_kv_heads": 1,
        "n_layer": 2,
        "rope_theta": 10000.0,
        "vocab_size": 256,
    },
    "llama4_text": tiny(
        "llama4_text", intermediate_size_mlp=128, no_rope_layers=[1, 0], use_qk_norm=True, **UNTIED
    ),
    "minicpm": tiny("minicpm", **MINICPM),
    "nanbeige": tiny("nanbeige", num_loops=2),
    "nemotron": tiny("nemotron", hidden_act="relu2", norm_eps=1e-5),
    # The second layer has no attention and so no cache.
    "nemotron-nas": tiny(
        "nemotron-nas",
        block_configs=[
            {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 1.0}},
            {"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.0}},
        ],
    ),
    "openelm": {
        "model_type": "openelm",
        "head_dim": 64,
        "num_transformer_layers": 2,
        "model_dim": 128,
        "vocab_size": 256,
        "max_context_length": 2048,
        "ffn_dim_divisor": 16,
        "num_query_heads": [2, 4],
        "num_kv_heads": [1, 2],
        "ffn_multipliers": [1.0, 2.0],
    },
    "phi": tiny("phi", layer_norm_eps=1e-5, partial_rotary_factor=0.5),
    # mlx-lm masks tokens of the real vocabulary by their ids, whatever the size of the table.
    "phi3small": tiny(
        "phi3small",
        vocab_size=100352,
        dense_attention_every_n_layers=2,
        ff_intermediate_size=128,
        gegelu_limit=20.0,
        layer_norm_epsilon=1e-5,
    ),
    "plamo": tiny("plamo", n_shared_head=2),
    "qwen": tiny("qwen", kv_channels=64, layer_norm_epsilon=1e-5),
    "qwen3": tiny("qwen3", **UNTIED),
    "smollm3": tiny("smollm3", no_rope_layer_interval=2),
    "stablelm": tiny("stablelm", use_qkv_bias=True, partial_rotary_factor=0.25, layer_norm_eps=1e-5),
}
