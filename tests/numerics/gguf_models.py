"""Tiny random models of each GGUF architecture, laid out as llama.cpp's converters do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.numerics.gguf_blocks import (
    EXPERTS,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    Arrays,
    Dice,
    TinyModel,
    attention,
    attention_bias,
    experts,
    metadata,
    mlp,
    norms,
    outer,
    stack,
)
from tests.numerics.tiny_gguf import vocabulary


def llama(*, biased: bool = False, untied: bool = False, name: str = "llama", head: int = 32) -> TinyModel:
    """Heads of 32, where hidden / heads is 16."""
    dice, layers = Dice(1), 4 if name == "smollm3" else 2

    def layer() -> Arrays:
        biases = attention_bias(dice, head, output=True) if biased else {}
        if biased:
            biases |= {"ffn_gate.bias": dice.bias(INNER), "ffn_up.bias": dice.bias(INNER)}
            biases |= {"ffn_down.bias": dice.bias(HIDDEN)}
        return norms(dice, "attn_norm", "ffn_norm") | attention(dice, head) | mlp(dice) | biases

    stated = metadata(layers, head, rope__dimension_count=head, vocab_size=len(vocabulary()))
    return TinyModel(name, stated, outer(dice, untied=untied) | stack(layers, layer))


def granite() -> TinyModel:
    scales = {"logit_scale": 3.0, "residual_scale": 0.25, "embedding_scale": 2.0, "attention.scale": 0.11}
    return llama(name="granite", head=16).stating(**scales)


def mixtral(*, old: bool = False) -> TinyModel:
    """old: each expert's matrices by themselves, as in files of 2023."""
    dice = Dice(2)

    def layer() -> Arrays:
        arrays = norms(dice, "attn_norm", "ffn_norm") | attention(dice, 16) | experts(dice, INNER)
        return _apart(arrays) if old else arrays

    stated = metadata(2, 16, expert_count=EXPERTS, expert_used_count=2, rope__dimension_count=16)
    return TinyModel("llama", stated, outer(dice, untied=True) | stack(2, layer))


def _apart(arrays: Arrays) -> Arrays:
    found = {}
    for name, array in arrays.items():
        single = name.replace("_exps.weight", ".{}.weight")
        found |= {single.format(e): m for e, m in enumerate(array)} if single != name else {name: array}
    return found


def qwen2(*, untied: bool = False) -> TinyModel:
    dice = Dice(3)

    def layer() -> Arrays:
        biases = attention_bias(dice, 16, output=False)
        return norms(dice, "attn_norm", "ffn_norm") | attention(dice, 16) | biases | mlp(dice)

    return TinyModel("qwen2", metadata(2, 16), outer(dice, untied=untied) | stack(2, layer))


def qwen3(*, untied: bool = False, moe: bool = False) -> TinyModel:
    dice, head = Dice(4), 32

    def layer() -> Arrays:
        heads = {f"attn_{n}_norm.weight": dice.norm(head) for n in "qk"}
        inner = experts(dice, 32) if moe else mlp(dice)
        return norms(dice, "attn_norm", "ffn_norm") | attention(dice, head) | heads | inner

    stated = metadata(2, head)
    if moe:
        stated |= {"expert_count": EXPERTS, "expert_used_count": 2, "expert_feed_forward_length": 32}
    weights = outer(dice, untied=untied) | stack(2, layer)
    return TinyModel("qwen3moe" if moe else "qwen3", stated, weights)


def qwen2_moe() -> TinyModel:
    dice, shared = Dice(5), 160

    def layer() -> Arrays:
        return {
            **norms(dice, "attn_norm", "ffn_norm"),
            **attention(dice, 16),
            **attention_bias(dice, 16, output=False),
            **experts(dice, 32),
            "ffn_gate_inp_shexp.weight": dice.matrix(HIDDEN) * 4,
            "ffn_gate_shexp.weight": dice.matrix(shared, HIDDEN),
            "ffn_up_shexp.weight": dice.matrix(shared, HIDDEN),
            "ffn_down_shexp.weight": dice.matrix(HIDDEN, shared),
        }

    stated = metadata(2, 16, expert_count=EXPERTS, expert_used_count=2, expert_feed_forward_length=32)
    stated |= {"expert_shared_feed_forward_length": shared}
    return TinyModel("qwen2moe", stated, outer(dice, untied=True) | stack(2, layer))


def gemma() -> TinyModel:
    dice, head = Dice(6), 32
    stated = metadata(2, head)
    del stated["rope.freq_base"]
    weights = stack(2, lambda: norms(dice, "attn_norm", "ffn_norm") | attention(dice, head) | mlp(dice))
    return TinyModel("gemma", stated, outer(dice, untied=False) | weights)


def gemma_post(name: str, layers: int, **stated: Any) -> TinyModel:
    """Gemma 2 and 3: four norms a layer; Gemma 3's query and key norms. Heads of 32."""
    dice, head = Dice(7), 32

    def layer() -> Arrays:
        arrays = norms(dice, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        heads = {f"attn_{n}_norm.weight": dice.norm(head) for n in "qk"} if name == "gemma3" else {}
        return arrays | attention(dice, head) | heads | mlp(dice)

    weights = outer(dice, untied=False) | stack(layers, layer)
    return TinyModel(name, metadata(layers, head, **stated), weights)


def gemma2() -> TinyModel:
    caps = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
    return gemma_post("gemma2", 2, attention__sliding_window=64, **caps)


def gemma3() -> TinyModel:
    """Seven layers, of which the sixth attends to everything; a window that the test's tokens pass."""
    return gemma_post("gemma3", 7, attention__sliding_window=8)


def phi3(*, untied: bool = True, longrope: bool = False) -> TinyModel:
    """Three quarters of each head of 16 are rotated."""
    dice, head, rotated = Dice(8), 16, 12

    def layer() -> Arrays:
        split = attention(dice, head)
        qkv = np.concatenate([split[f"attn_{n}.weight"] for n in "qkv"])
        up = np.concatenate([dice.matrix(INNER, HIDDEN), dice.matrix(INNER, HIDDEN)])
        return {
            **norms(dice, "attn_norm", "ffn_norm"),
            "attn_qkv.weight": qkv,
            "attn_output.weight": split["attn_output.weight"],
            "ffn_up.weight": up,
            "ffn_down.weight": dice.matrix(HIDDEN, INNER),
        }

    stated = metadata(2, head, rope__dimension_count=rotated, attention__sliding_window=0)
    stated["rope.scaling.original_context_length"] = 16 if longrope else 128
    weights = outer(dice, untied=untied) | stack(2, layer)
    if longrope:
        stated["rope.scaling.attn_factor"] = math.sqrt(1 + math.log(128 / 16) / math.log(16))
        long = np.linspace(1, 6, rotated // 2, dtype=np.float32)
        weights |= {"rope_factors_long.weight": long, "rope_factors_short.weight": long / 2}
    return TinyModel("phi3", stated, weights)


def olmo2() -> TinyModel:
    dice, head = Dice(9), 16

    def layer() -> Arrays:
        arrays = norms(dice, "post_attention_norm", "post_ffw_norm") | attention(dice, head)
        sizes = {"q": HEADS * head, "k": KV_HEADS * head}
        return arrays | {f"attn_{n}_norm.weight": dice.norm(s) for n, s in sizes.items()} | mlp(dice)

    return TinyModel("olmo2", metadata(2, head), outer(dice, untied=True) | stack(2, layer))


def cohere(name: str = "command-r", *, qk_norm: bool = False, layers: int = 2) -> TinyModel:
    """Of four layers of Cohere 2 the last attends to everything and is not rotated."""
    dice, head = Dice(10), 16

    def layer() -> Arrays:
        arrays = norms(dice, "attn_norm") | attention(dice, head) | mlp(dice)
        if qk_norm:
            sizes = {"q": HEADS, "k": KV_HEADS}
            arrays |= {f"attn_{n}_norm.weight": dice.norm(s, head) for n, s in sizes.items()}
        return arrays

    stated = metadata(layers, head, eps="layer", logit_scale=0.25, rope__scaling__type="none")
    if name == "cohere2":
        stated |= {"attention.sliding_window": 8, "rope.dimension_count": head}
    return TinyModel(name, stated, outer(dice, untied=False) | stack(layers, layer))


def stablelm(*, parallel: bool = False, biased: bool = True) -> TinyModel:
    """A quarter of each head of 16 is rotated."""
    dice, head = Dice(11), 16

    def layer() -> Arrays:
        names = ("attn_norm",) if parallel else ("attn_norm", "ffn_norm")
        biases = attention_bias(dice, head, output=False) if biased else {}
        return norms(dice, *names, bias=True) | attention(dice, head) | biases | mlp(dice)

    stated = metadata(2, head, eps="layer", rope__dimension_count=4, use_parallel_residual=True)
    return TinyModel("stablelm", stated, outer(dice, untied=True, bias=True) | stack(2, layer))


def starcoder2() -> TinyModel:
    dice, head = Dice(12), 16

    def layer() -> Arrays:
        return {
            **norms(dice, "attn_norm", "ffn_norm", bias=True),
            **attention(dice, head),
            **attention_bias(dice, head, output=True),
            "ffn_up.weight": dice.matrix(INNER, HIDDEN) * 2,
            "ffn_up.bias": dice.bias(INNER),
            "ffn_down.weight": dice.matrix(HIDDEN, INNER),
            "ffn_down.bias": dice.bias(HIDDEN),
        }

    weights = outer(dice, untied=False, bias=True) | stack(2, layer)
    return TinyModel("starcoder2", metadata(2, head, eps="layer"), weights)


def exaone() -> TinyModel:
    dice = Dice(13)
    weights = stack(2, lambda: norms(dice, "attn_norm", "ffn_norm") | attention(dice, 16) | mlp(dice))
    return TinyModel("exaone", metadata(2, 16), outer(dice, untied=True) | weights)


def llama3_factors(waves: np.ndarray, factor: float, low: float, high: float, context: int) -> np.ndarray:
    """What the converter writes as `rope_freqs.weight` for a Llama 3 scaling: one number a rotary pair."""
    found = []
    for wave in waves:
        if wave < context / high:
            found.append(1.0)
        elif wave > context / low:
            found.append(factor)
        else:
            smooth = (context / wave - low) / (high - low)
            found.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(found, np.float32)


def stretched(model: TinyModel, low: float = 1.0, high: float = 4.0, context: int = 64) -> TinyModel:
    """With Llama 3's scaling by 8 from a context of 64 tokens."""
    head, base = model.metadata["attention.key_length"], model.metadata["rope.freq_base"]
    waves = 2 * np.pi * base ** (np.arange(0, head, 2) / head)
    factors = llama3_factors(waves, 8.0, low, high, context)
    changed = model.holding({"rope_freqs.weight": factors})
    return changed.stating(rope__scaling__original_context_length=context)


MODELS: Mapping[str, TinyModel] = {
    "llama": llama(),
    "llama untied with biases": llama(biased=True, untied=True),
    "llama 3 scaling": stretched(llama()),
    "llama other bands": stretched(llama(), 2.0, 6.0, 128),
    "llama linear": llama().stating(rope__scaling__type="linear", rope__scaling__factor=4.0),
    "mixtral": mixtral(),
    "mixtral of 2023": mixtral(old=True),
    "smollm3": llama(name="smollm3"),
    "granite": granite(),
    "qwen2": qwen2(),
    "qwen2 untied": qwen2(untied=True),
    "qwen2 yarn": qwen2().stating(
        rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__original_context_length=32
    ),
    "qwen2moe": qwen2_moe(),
    "qwen3": qwen3(),
    "qwen3 untied": qwen3(untied=True),
    "qwen3moe": qwen3(moe=True, untied=True),
    "gemma": gemma(),
    "gemma2": gemma2(),
    "gemma3": gemma3(),
    "gemma3 linear": gemma3().stating(rope__scaling__type="linear", rope__scaling__factor=8.0),
    "phi3": phi3(),
    "phi3 tied": phi3(untied=False),
    "phi3 longrope": phi3(longrope=True),
    "olmo2": olmo2(),
    "command-r": cohere(),
    "command-r with norms": cohere(qk_norm=True),
    "cohere2": cohere("cohere2", layers=4),
    "stablelm": stablelm(),
    "stablelm parallel": stablelm(parallel=True, biased=False),
    "starcoder2": starcoder2(),
    "exaone": exaone(),
    "exaone scaled": stretched(exaone()),
}
