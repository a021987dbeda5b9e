"""A tiny GGUF model as data, and the random parts that architectures are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from labkit.model.gguf.summary import Summary
from tests.numerics.tiny_gguf import MERGES, SPECIAL, vocabulary, write_tensors

HIDDEN, HEADS, KV_HEADS, INNER, EXPERTS = 64, 4, 2, 96, 4
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class TinyModel:
    """metadata: keys below the architecture's prefix. weights: GGUF names -> float32 arrays."""

    architecture: str
    metadata: Mapping[str, Any]
    weights: Mapping[str, np.ndarray]

    def stating(self, **metadata: Any) -> TinyModel:
        """With further metadata; a `__` in a name is a dot, None takes a key away."""
        changed = {**self.metadata, **{k.replace("__", "."): v for k, v in metadata.items()}}
        return replace(self, metadata={k: v for k, v in changed.items() if v is not None})

    def holding(self, weights: Mapping[str, np.ndarray | None]) -> TinyModel:
        """With further tensors; None takes one away."""
        changed = {**self.weights, **weights}
        return replace(self, weights={k: v for k, v in changed.items() if v is not None})

    def summary(self) -> Summary:
        metadata = {f"{self.architecture}.{k}": v for k, v in self.metadata.items()}
        shapes = {n: a.shape for n, a in self.weights.items()}
        named = {"general.architecture": self.architecture, **metadata}
        return Summary(named, shapes, lambda name: self.weights[name])

    def write(self, path: Path, *, quantized: bool = False) -> Path:
        """All float32, or Q8_0 for every matrix that can be."""
        writer = gguf.GGUFWriter(path, self.architecture)
        for key, value in self.metadata.items():
            _add(writer, f"{self.architecture}.{key}", value)
        _add_tokenizer(writer)
        write_tensors(writer, self.weights, quantized=quantized)
        return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    adders: dict[type, Callable[[str, Any], None]] = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    adders[type(value)](key, value)


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    tokens = vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


class Dice:
    """Random float32 arrays from one seed."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def matrix(self, *shape: int) -> np.ndarray:
        """Entries that keep the size of what they multiply."""
        return self._random.normal(0, shape[-1] ** -0.5, shape).astype(np.float32)

    def norm(self, *shape: int) -> np.ndarray:
        return (1 + self._random.normal(0, 0.3, shape)).astype(np.float32)

    def bias(self, size: int) -> np.ndarray:
        return self._random.normal(0, 0.3, size).astype(np.float32)


def metadata(layers: int, head: int, eps: str = "rms", **more: Any) -> dict[str, Any]:
    key = "attention.layer_norm_rms_epsilon" if eps == "rms" else "attention.layer_norm_epsilon"
    return {
        "block_count": layers,
        "context_length": 128,
        "embedding_length": HIDDEN,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": head,
        "attention.value_length": head,
        "rope.freq_base": 5000.0,
        key: 1e-3,
        **{k.replace("__", "."): v for k, v in more.items()},
    }


def outer(dice: Dice, *, untied: bool, bias: bool = False) -> Arrays:
    rows = len(vocabulary())
    return {
        "token_embd.weight": dice.matrix(rows, HIDDEN) * 4,
        "output_norm.weight": dice.norm(HIDDEN),
        **({"output_norm.bias": dice.bias(HIDDEN)} if bias else {}),
        **({"output.weight": dice.matrix(rows, HIDDEN) * 4} if untied else {}),
    }


def attention(dice: Dice, head: int) -> Arrays:
    return {
        "attn_q.weight": dice.matrix(HEADS * head, HIDDEN) * 2,
        "attn_k.weight": dice.matrix(KV_HEADS * head, HIDDEN) * 2,
        "attn_v.weight": dice.matrix(KV_HEADS * head, HIDDEN),
        "attn_output.weight": dice.matrix(HIDDEN, HEADS * head),
    }


def attention_bias(dice: Dice, head: int, *, output: bool) -> Arrays:
    sizes = {"q": HEADS * head, "k": KV_HEADS * head, "v": KV_HEADS * head}
    biases = {f"attn_{n}.bias": dice.bias(size) for n, size in sizes.items()}
    return biases | ({"attn_output.bias": dice.bias(HIDDEN)} if output else {})


def mlp(dice: Dice) -> Arrays:
    return {
        "ffn_gate.weight": dice.matrix(INNER, HIDDEN),
        "ffn_up.weight": dice.matrix(INNER, HIDDEN),
        "ffn_down.weight": dice.matrix(HIDDEN, INNER),
    }


def experts(dice: Dice, inner: int) -> Arrays:
    return {
        "ffn_gate_inp.weight": dice.matrix(EXPERTS, HIDDEN) * 2,
        "ffn_gate_exps.weight": dice.matrix(EXPERTS, inner, HIDDEN),
        "ffn_up_exps.weight": dice.matrix(EXPERTS, inner, HIDDEN),
        "ffn_down_exps.weight": dice.matrix(EXPERTS, HIDDEN, inner),
    }


def norms(dice: Dice, *names: str, bias: bool = False) -> Arrays:
    weights = {f"{n}.weight": dice.norm(HIDDEN) for n in names}
    return weights | ({f"{n}.bias": dice.bias(HIDDEN) for n in names} if bias else {})


def stack(layers: int, make: Callable[[], Arrays]) -> Arrays:
    return {f"blk.{i}.{name}": array for i in range(layers) for name, array in make().items()}
