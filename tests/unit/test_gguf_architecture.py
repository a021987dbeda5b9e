"""GGUF architectures without their data: the config that a file leads to, and every refusal by name."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from labkit.core.errors import ModelUnavailable
from labkit.model.gguf.architectures.catalog import architecture_of
from tests.numerics import gguf_models as tiny
from tests.numerics.gguf_blocks import HEADS, HIDDEN, TinyModel
from tests.numerics.gguf_models import MODELS


def plan(model: TinyModel) -> dict[str, Any]:
    """The config, after the weights are checked too."""
    summary = model.summary()
    architecture = architecture_of(summary)
    config = architecture.config(summary)
    architecture.weights(summary, config)
    return config


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama", {"model_type": "llama", "head_dim": 32, "rope_theta": 5000.0, "rms_norm_eps": 1e-3}),
        ("llama", {"tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False}),
        ("llama untied with biases", {"tie_word_embeddings": False, "attention_bias": True}),
        ("mixtral", {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}),
        ("smollm3", {"no_rope_layers": [1, 1, 1, 0]}),
        ("granite", {"logits_scaling": 3.0, "attention_multiplier": 0.11, "residual_multiplier": 0.25}),
        ("qwen2moe", {"model_type": "qwen2_moe", "shared_expert_intermediate_size": 160}),
        ("qwen3moe", {"model_type": "qwen3_moe", "norm_topk_prob": True, "moe_intermediate_size": 32}),
        ("gemma2", {"query_pre_attn_scalar": 32, "attn_logit_softcapping": 2.0, "sliding_window": 64}),
        ("gemma3", {"model_type": "gemma3_text", "sliding_window_pattern": 6, "sliding_window": 8}),
        ("gemma3", {"query_pre_attn_scalar": 32, "rope_local_base_freq": 10000.0}),
        ("phi3", {"partial_rotary_factor": 0.75, "original_max_position_embeddings": 128}),
        ("command-r with norms", {"model_type": "cohere", "use_qk_norm": True, "logit_scale": 0.25}),
        ("cohere2", {"sliding_window_pattern": 4, "sliding_window": 8, "layer_norm_eps": 1e-3}),
        ("stablelm", {"use_qkv_bias": True, "use_parallel_residual": False}),
        ("stablelm parallel", {"use_qkv_bias": False, "use_parallel_residual": True}),
        ("exaone", {"num_layers": 2, "layer_norm_epsilon": 1e-3}),
    ],
)
def test_the_config_says_what_the_file_says(name: str, expected: dict[str, Any]) -> None:
    config = plan(MODELS[name])
    assert {key: config[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("factor", "low", "high", "context"),
    [(8.0, 1.0, 4.0, 8192), (32.0, 1.0, 4.0, 8192), (16.0, 1.5, 6.5, 4096)],
)
def test_llama_3_scaling_is_found_from_its_factors(
    factor: float, low: float, high: float, context: int
) -> None:
    """As Llama 3.1 and 3.2 have it: heads of 128, a base of 500,000, and no word of it in the metadata."""
    waves = 2 * np.pi * 500000.0 ** (np.arange(0, 128, 2) / 128)
    factors = tiny.llama3_factors(waves, factor, low, high, context)
    model = tiny.llama(head=128).stating(rope__freq_base=500000.0).holding({"rope_freqs.weight": factors})
    scaling = plan(model)["rope_scaling"]
    bands = scaling["original_max_position_embeddings"] / np.array(
        [scaling["low_freq_factor"], scaling["high_freq_factor"]]
    )
    np.testing.assert_allclose(bands, [context / low, context / high], rtol=1e-4)  # low and high: 4 decimals
    assert scaling["factor"] == factor


def test_the_largest_gemmas_scale_by_their_width() -> None:
    for name, layers in (("gemma2", 46), ("gemma3", 62)):
        model = tiny.gemma_post(name, layers, attention__sliding_window=8)
        assert plan(model)["query_pre_attn_scalar"] == HIDDEN // HEADS


def test_a_pattern_of_layers_is_read_in_both_forms() -> None:
    flags = [True, True, False, True, True, False, True]
    for stated in (3, flags):
        model = MODELS["gemma3"].stating(attention__sliding_window_pattern=stated)
        assert plan(model)["sliding_window_pattern"] == 3


def test_numbers_stated_for_each_layer_are_one_where_they_agree() -> None:
    assert plan(MODELS["llama"].stating(feed_forward_length=[96, 96]))["intermediate_size"] == 96


@pytest.mark.parametrize(
    ("name", "taken", "expected"),
    [
        ("gemma2", "attn_logit_softcapping", {"attn_logit_softcapping": 50.0}),
        ("gemma2", "final_logit_softcapping", {"final_logit_softcapping": 30.0}),
        ("gemma2", "attention__sliding_window", {"sliding_window": 4096, "max_position_embeddings": 128}),
        ("gemma2", "rope__freq_base", {"rope_theta": 10000.0}),
        ("gemma3", "rope__freq_base", {"rope_theta": 1000000.0, "rope_local_base_freq": 10000.0}),
    ],
)
def test_what_a_gemma_file_leaves_out_is_what_gemma_has(
    name: str, taken: str, expected: dict[str, Any]
) -> None:
    config = plan(MODELS[name].stating(**{taken: None}))
    assert {key: config[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "window", "context"),
    [("gemma2", 64, 64), ("phi3", 64, 128), ("gemma2", 4096, 128), ("phi3", 0, 128)],
)
def test_the_context_ends_with_a_window_that_mlx_lm_leaves_out(name: str, window: int, context: int) -> None:
    model = MODELS[name].stating(attention__sliding_window=window)
    config = plan(model)
    assert config["max_position_embeddings"] == context
    summary = model.summary()
    assert architecture_of(summary).cut(summary.metadata, config) == 128 - context


def test_the_default_window_of_gemma_2_ends_its_context() -> None:
    stated = {"context_length": 8192, "attention__sliding_window": None}
    assert plan(MODELS["gemma2"].stating(**stated))["max_position_embeddings"] == 4096


def test_a_context_shorter_than_the_original_one_is_not_scaled_down() -> None:
    """mlx-lm multiplies by 1 there; the root of a negative logarithm would be asked for otherwise."""
    stated = {"rope__scaling__original_context_length": 256, "rope__scaling__attn_factor": 1.0}
    config = plan(MODELS["phi3 longrope"].stating(**stated))
    assert config["rope_scaling"]["type"] == "longrope"
    assert config["original_max_position_embeddings"] == 256


def test_ones_for_rotary_factors_are_no_scaling() -> None:
    model = MODELS["llama"].holding({"rope_freqs.weight": np.ones(16, np.float32)})
    assert "rope_scaling" not in plan(model)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("llama", {"rope__scaling__type": "longrope"}, r"llama\.rope\.scaling\.type\n.*longrope"),
    ("llama", {"rope__scaling__type": "dynamic"}, r"llama\.rope\.scaling\.type\n.*dynamic"),
    ("llama", {"rope__scaling__type": 7}, r"llama\.rope\.scaling\.type\n.*7"),
    ("llama linear", {"rope__scaling__attn_factor": 1.1}, r"llama\.rope\.scaling\.attn_factor\n.*1\.1"),
    ("qwen2 yarn", {"rope__scaling__yarn_attn_factor": 2.0}, r"rope\.scaling\.yarn_attn_factor\n.*2\.0"),
    ("llama", {"rope__scale_linear": 4.0}, r"llama\.rope\.scale_linear\n.*4"),
    (
        "llama 3 scaling",
        {"rope__scaling__type": "yarn"},
        r"rope\.scaling\.type\n.*yarn, with the tensor rope_f",
    ),
    ("llama", {"rope__scaling__factor": math.nan}, r"rope\.scaling\.factor\n.*nan"),
    ("qwen2 yarn", {"rope__scaling__yarn_ext_factor": 0.5}, r"qwen2\.rope\.scaling\.yarn_ext_factor\n.*0\.5"),
    ("qwen2 yarn", {"rope__scaling__attn_factor": 1.1}, r"qwen2\.rope\.scaling\.attn_factor\n.*1\.1"),
    ("qwen3moe", {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}, r"qwen3moe.*type\n.*yarn"),
    ("mixtral", {"rope__scaling__factor": 4.0}, r"llama\.rope\.scaling\.type\n.*linear\n.*none"),
    ("phi3 longrope", {"rope__scaling__attn_factor": 1.2}, r"phi3\.rope\.scaling\.attn_factor\n.*1\.2"),
    ("llama", {"logit_scale": 0.5}, r"llama\.logit_scale\n.*0\.5"),
    ("llama", {"attn_logit_softcapping": 50.0}, r"llama\.attn_logit_softcapping\n.*50"),
    ("gemma3", {"final_logit_softcapping": 30.0}, r"gemma3\.final_logit_softcapping\n.*30"),
    ("qwen2", {"attention__scale": 0.2}, r"qwen2\.attention\.scale\n.*0\.2"),
    ("qwen2", {"rope__dimension_sections": [16, 24, 24, 0]}, r"qwen2\.rope\.dimension_sections"),
    ("qwen3", {"attention__causal": False}, r"qwen3\.attention\.causal\n.*False"),
    ("llama", {"attention__sliding_window": 64}, r"llama\.attention\.sliding_window\n.*64\n.*128"),
    ("olmo2", {"attention__sliding_window": 64}, r"olmo2\.attention\.sliding_window"),
    ("granite", {"rope__scaling__finetuned": False}, r"granite\.rope\.scaling\.finetuned\n.*False"),
    ("granite", {"attention.scale": None}, r"granite\.attention\.scale\n.*absent"),
    ("qwen3moe", {"expert_gating_func": 2}, r"qwen3moe\.expert_gating_func\n.*2"),
    ("mixtral", {"expert_gating_func": 2}, r"llama\.expert_gating_func\n.*2"),
    ("mixtral", {"expert_weights_norm": False}, r"llama\.expert_weights_norm\n.*False"),
    ("mixtral", {"expert_weights_scale": 2.5}, r"llama\.expert_weights_scale\n.*2\.5"),
    ("qwen2moe", {"expert_weights_norm": True}, r"qwen2moe\.expert_weights_norm\n.*True"),
    ("qwen2moe", {"expert_shared_count": 2}, r"qwen2moe\.expert_shared_count\n.*2"),
    ("qwen3moe", {"expert_weights_norm": False}, r"qwen3moe\.expert_weights_norm\n.*False"),
    ("qwen3moe", {"expert_group_used_count": 4}, r"qwen3moe\.expert_group_used_count\n.*4"),
    ("llama", {"attention__max_alibi_bias": 8.0}, r"llama\.attention\.max_alibi_bias\n.*8"),
    ("qwen2moe", {"expert_used_count": 5}, r"qwen2moe\.expert_used_count\n.*5\n.*4 experts"),
    ("mixtral", {"expert_count": 2**30}, r"ffn_gate_inp\.weight \[1073741824, 64\]\n.*\[4, 64\]"),
    ("mixtral of 2023", {"expert_count": 2**30}, r"llama\.expert_count\n.*1073741824, .*\n.*at most"),
    ("llama", {"block_count": 2**31 - 1}, r"llama\.block_count\n.*2147483647, .*\n.*at most"),
    ("mixtral of 2023", {"expert_count": 40, "block_count": 40}, r"expert_count\n.*40, .* 5083 .*\n.*41"),
    ("mixtral of 2023", {"expert_count": 4, "block_count": 40}, r"block_count\n.*40, .* 763 .*\n.*41"),
    ("llama", {"block_count": None}, r"llama\.block_count\n.*absent"),
    ("llama", {"embedding_length": "64"}, r"llama\.embedding_length\n.*64\n.*an integer"),
    ("llama", {"attention__head_count": True}, r"llama\.attention\.head_count\n.*True"),
    ("llama", {"attention__head_count": [4, 2]}, r"llama\.attention\.head_count\n.*\[4, 2\]"),
    ("llama", {"attention__head_count_kv": 3}, r"head_count_kv\n.*3\n.*divisor of 4"),
    ("llama", {"attention__layer_norm_rms_epsilon": 0.5}, r"layer_norm_rms_epsilon\n.*0\.5"),
    ("llama", {"rope__freq_base": math.inf}, r"llama\.rope\.freq_base\n.*inf"),
    ("llama", {"rope__dimension_count": 16}, r"llama\.rope\.dimension_count\n.*16\n.*32"),
    ("llama", {"attention__value_length": 16}, r"llama\.attention\.value_length\n.*16\n.*32"),
    ("qwen2", {"attention__key_length": 32}, r"qwen2\.attention\.key_length\n.*32\n.*64 / 4"),
    ("qwen3", {"attention__key_length": 31}, r"qwen3\.attention\.key_length\n.*31\n.*even"),
    ("phi3", {"attention__sliding_window": "8"}, r"phi3\.attention\.sliding_window\n.*8\n.*integer"),
    ("gemma2", {"attention__sliding_window": math.inf}, r"gemma2\.attention\.sliding_window\n.*inf"),
    ("phi3", {"rope__dimension_count": 18}, r"phi3\.rope\.dimension_count\n.*18"),
    ("gemma3", {"attention__sliding_window": None}, r"gemma3\.attention\.sliding_window\n.*absent"),
    ("gemma3", {"attention__sliding_window_pattern": [True] * 7}, r"sliding_window_pattern\n.*True"),
    ("cohere2", {"attention__sliding_window_pattern": 3}, r"cohere2\.attention\.sliding_window_pattern\n.*3"),
    ("gemma2", {"rope__freq_base_swa": 1.0}, r"gemma2\.rope\.freq_base_swa\n.*1\.0"),
]


@pytest.mark.parametrize(("name", "stated", "named"), REFUSED)
def test_metadata_that_would_come_out_wrong_is_refused_by_name(
    name: str, stated: dict[str, Any], named: str
) -> None:
    with pytest.raises(ModelUnavailable, match=named):
        plan(MODELS[name].stating(**stated))


ONES = np.ones(16, np.float32)


@pytest.mark.parametrize(
    ("name", "weights", "named"),
    [
        ("llama", {"blk.1.attn_q_norm.weight": ONES}, r"unknown blk\.1\.attn_q_norm\.weight"),
        ("llama", {"blk.0.attn_q.bias": ONES}, r"no blk\.0\.attn_k\.bias"),
        ("llama", {"blk.2.attn_norm.weight": ONES}, r"unknown blk\.2\.attn_norm\.weight"),
        ("llama", {"token_embd.weight": None}, r"no token_embd\.weight"),
        ("llama", {"rope_freqs.weight": ONES * 2}, r"values of rope_freqs\.weight\n.*2\.0"),
        ("llama", {"rope_freqs.weight": ONES * math.nan}, r"values of rope_freqs\.weight\n.*nan"),
        ("llama", {"rope_freqs.weight": np.arange(1, 3, dtype=np.float32)}, r"values of rope_freqs\.weight"),
        ("qwen2", {"blk.1.attn_v.bias": None}, r"no blk\.1\.attn_v\.bias"),
        ("qwen3", {"blk.0.attn_k_norm.weight": np.ones(64, np.float32)}, r"attn_k_norm\.weight \[32\]\n.*64"),
        ("gemma2", {"output.weight": np.ones((264, 64), np.float32)}, r"unknown output\.weight"),
        ("qwen2moe", {"output.weight": None}, r"no output\.weight"),
        ("stablelm", {"blk.0.attn_q_norm.weight": np.ones((4, 16), np.float32)}, r"unknown blk\.0\.attn_q_n"),
        ("phi3 longrope", {"rope_factors_short.weight": None}, r"without the tensor rope_factors_short"),
        ("phi3 longrope", {"rope_factors_long.weight": -ONES[:6]}, r"values of rope_factors_long.*\n.*-1"),
        ("mixtral", {"blk.1.ffn_up_exps.weight": None}, r"no blk\.1\.ffn_up_exps\.weight"),
        ("mixtral of 2023", {"blk.1.ffn_up.3.weight": None}, r"no blk\.1\.ffn_up\.3\.weight"),
        (
            "mixtral",
            {"blk.0.ffn_down_exps.weight": np.ones((4, 96, 64), np.float32)},
            r"\[4, 64, 96\]\n.*96, 64",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(
    name: str, weights: dict[str, np.ndarray | None], named: str
) -> None:
    with pytest.raises(ModelUnavailable, match=named):
        plan(MODELS[name].holding(weights))


def test_other_architectures_and_kinds_of_file_are_refused_by_name() -> None:
    for name in ("mamba", "mistral3", "gemma3n", ""):
        with pytest.raises(ModelUnavailable, match=f"{name or 'none stated'}\n(.|\n)*options: cohere2, "):
            architecture_of(replace(MODELS["llama"], architecture=name).summary())
    adapter = replace(MODELS["llama"].summary(), metadata={"general.type": "adapter"})
    with pytest.raises(ModelUnavailable, match=r"general\.type\n.*adapter"):
        architecture_of(adapter)


HOSTILE: list[Any] = [
    None,
    0,
    -1,
    1,
    3,
    2**31,
    2**63,
    -0.0,
    math.nan,
    math.inf,
    1e-30,
    True,
    "",
    "yarn",
    [],
    [[1]],
]


def outcome(model: TinyModel) -> str:
    try:
        return json.dumps(plan(model), allow_nan=False)
    except ModelUnavailable as error:
        return f"refused: {error}"


@pytest.mark.parametrize("name", MODELS)
def test_any_value_of_any_key_gives_a_config_or_one_message(name: str) -> None:
    further = ("rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length")
    with np.errstate(all="raise"):
        found = [
            outcome(MODELS[name].stating(**{key: value}))
            for key in (*MODELS[name].metadata, *further)
            for value in HOSTILE
        ]
    refusals = [text for text in found if text.startswith("refused")]
    assert len(refusals) > len(HOSTILE)
    assert max(map(len, refusals)) < 1000
