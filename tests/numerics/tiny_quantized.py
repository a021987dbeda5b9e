"""Tiny random models of a config as directories, and mlx-lm's own quantization of them."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.utils import quantize_model

from labkit.model.graph import load_graph
from tests.numerics.tiny_directory import write_tokenizer
from tests.numerics.tiny_models import GEMMA3, LLAMA, tiny_graph

# 257 is the size of the tokenizer's vocabulary; every row is 128 or 256 wide, so that all groups divide it.
TIED: dict[str, Any] = {**LLAMA, "vocab_size": 257, "tie_word_embeddings": True}
UNTIED: dict[str, Any] = {**TIED, "tie_word_embeddings": False}
SLIDING: dict[str, Any] = {**GEMMA3, "vocab_size": 257, "hidden_size": 128}
DTYPES: dict[str, mx.Dtype] = {"float32": mx.float32, "bfloat16": mx.bfloat16}


def write_model(folder: Path, config: dict[str, Any], dtype: str = "float32") -> Path:
    """A model directory with random weights, the same at every call."""
    folder.mkdir(parents=True)
    graph = tiny_graph(config, DTYPES[dtype])
    mx.save_safetensors(str(folder / "model.safetensors"), named(graph), {"format": "mlx"})
    stated = {**config, "torch_dtype": dtype, "eos_token_id": 256}
    (folder / "config.json").write_text(json.dumps(stated))
    write_tokenizer(folder)
    return folder


def named(graph: Any) -> dict[str, mx.array]:
    found: Any = tree_flatten(graph.parameters())
    return dict(found)


def upstream(directory: Path, mode: str, bits: int | None, group: int | None) -> tuple[Any, dict[str, Any]]:
    """The graph and config that mlx-lm's own quantization makes of a directory."""
    graph, _ = load_graph(directory)
    config = json.loads((directory / "config.json").read_text())
    return quantize_model(graph, deepcopy(config), group, bits, mode=mode)


def stored(directory: Path) -> dict[str, mx.array]:
    found: dict[str, mx.array] = {}
    for file in sorted(directory.glob("model*.safetensors")):
        arrays: Any = mx.load(str(file))
        found |= arrays
    return found


def differing(one: dict[str, mx.array], other: dict[str, mx.array]) -> list[str]:
    """Names in one only, or whose dtype, shape or bytes differ."""
    return sorted(
        name
        for name in one.keys() | other.keys()
        if name not in one or name not in other or not _equal(one[name], other[name])
    )


def _equal(one: mx.array, other: mx.array) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and bool(mx.array_equal(one, other).item())
