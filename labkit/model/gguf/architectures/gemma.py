"""Gemma 1, 2 and 3 (text). Their files hold 1 + w for every norm, where mlx-lm wants w."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labkit.model.gguf.architecture import Architecture
from labkit.model.gguf.architectures.blocks import ATTENTION, GATED_MLP, OUTER, RMS_FIELDS, TIED
from labkit.model.gguf.metadata import count, real, refused
from labkit.model.gguf.summary import Summary
from labkit.model.gguf.tensor import Config, Tensor, minus_one

_PATTERN = "gemma3.attention.sliding_window_pattern"
# Gemma 3 as released: every sixth layer attends to everything.
_PERIOD = 6
# The 27B models, which scale by hidden / heads instead of the head size, are known by their layers.
_WIDE_LAYERS = {"gemma2": 46, "gemma3": 62}


def _norm(target: str, size: str = "hidden_size") -> Tensor:
    return Tensor(target, (size,), minus_one)


_OUTER = {**OUTER, "output_norm.weight": _norm("model.norm.weight")}
_POST_NORMS = {
    "attn_norm.weight": _norm("input_layernorm.weight"),
    "post_attention_norm.weight": _norm("post_attention_layernorm.weight"),
    "ffn_norm.weight": _norm("pre_feedforward_layernorm.weight"),
    "post_ffw_norm.weight": _norm("post_feedforward_layernorm.weight"),
}


def _scale(name: str, config: Config) -> dict[str, float]:
    wide = config["num_hidden_layers"] == _WIDE_LAYERS[name]
    hidden_share = config["hidden_size"] // config["num_attention_heads"]
    return {"query_pre_attn_scalar": hidden_share if wide else config["head_dim"]}


def _finish_gemma2(summary: Summary, config: Config) -> Mapping[str, Any]:
    local = summary.metadata.get("gemma2.rope.freq_base_swa", config["rope_theta"])
    if local != config["rope_theta"]:
        raise refused("gemma2.rope.freq_base_swa", local, (config["rope_theta"],))
    return _scale("gemma2", config)


def _finish_gemma3(summary: Summary, config: Config) -> Mapping[str, Any]:
    stated = summary.metadata.get(_PATTERN, _PERIOD)
    period = _period(stated) if isinstance(stated, list) else stated
    layers = config["num_hidden_layers"]
    if isinstance(period, bool) or not isinstance(period, int) or not 1 <= period <= layers:
        raise refused(_PATTERN, stated, (f"every n-th of {layers} layers in full",))
    return {"sliding_window_pattern": period, **_scale("gemma3", config)}


def _period(slides: list[Any]) -> int | None:
    """n, where of a flag for each layer every n-th alone is false."""
    period = slides.index(False) + 1 if False in slides else 0
    expected = [(i + 1) % period != 0 for i in range(len(slides))] if period else []
    return period if slides == expected else None


GEMMA = Architecture(
    name="gemma",
    fields=RMS_FIELDS,
    constants={
        "architectures": ["GemmaForCausalLM"],
        "model_type": "gemma",
        "hidden_act": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
    },
    tensors=_OUTER,
    layer_tensors={
        "attn_norm.weight": _norm("input_layernorm.weight"),
        "ffn_norm.weight": _norm("post_attention_layernorm.weight"),
        **ATTENTION,
        **GATED_MLP,
    },
)

GEMMA2 = Architecture(
    name="gemma2",
    fields={
        **RMS_FIELDS,
        "attn_logit_softcapping": real("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": real("final_logit_softcapping", 30.0),
        "sliding_window": count("attention.sliding_window", 4096),
    },
    constants={
        "architectures": ["Gemma2ForCausalLM"],
        "model_type": "gemma2",
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
    },
    tensors=_OUTER,
    layer_tensors={**_POST_NORMS, **ATTENTION, **GATED_MLP},
    known=frozenset({"rope.freq_base_swa"}),
    allowed={"attention.sliding_window_pattern": (2,)},
    finish=_finish_gemma2,
    windowless=True,
)

GEMMA3 = Architecture(
    name="gemma3",
    fields={
        **RMS_FIELDS,
        "rope_theta": real("rope.freq_base", 1000000.0, low=1),
        "rope_local_base_freq": real("rope.freq_base_swa", 10000.0, low=1),
        "sliding_window": count("attention.sliding_window"),
    },
    constants={
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
    },
    tensors=_OUTER,
    layer_tensors={
        **_POST_NORMS,
        **ATTENTION,
        "attn_q_norm.weight": _norm("self_attn.q_norm.weight", "head_dim"),
        "attn_k_norm.weight": _norm("self_attn.k_norm.weight", "head_dim"),
        **GATED_MLP,
    },
    options=(TIED,),
    scalings=frozenset({"linear"}),
    known=frozenset({"attention.sliding_window_pattern"}),
    finish=_finish_gemma3,
)
