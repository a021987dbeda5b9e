"""Tiny random models of mlx-lm's own classes, wrapped as labkit models."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from inspect import signature
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.utils import load_model

from labkit.engine.catalog import build_engine
from labkit.engine.model import Model
from labkit.model.artifact import Artifact
from labkit.model.attention import bind_attention
from labkit.model.null import ByteTokenizer
from labkit.model.profile import profile_from_config

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "intermediate_size": 256,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "rms_norm_eps": 1e-5,
    "vocab_size": 256,
    "max_position_embeddings": 2048,
}
GEMMA3: dict[str, Any] = {
    "model_type": "gemma3_text",
    "hidden_size": 64,
    "num_hidden_layers": 7,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "rms_norm_eps": 1e-6,
    "vocab_size": 256,
    "sliding_window": 32,
    "sliding_window_pattern": 3,
    "max_position_embeddings": 2048,
}
MAMBA: dict[str, Any] = {
    "model_type": "mamba",
    "vocab_size": 256,
    "hidden_size": 32,
    "intermediate_size": 64,
    "state_size": 8,
    "num_hidden_layers": 2,
    "conv_kernel": 4,
    "use_bias": False,
    "use_conv_bias": True,
    "time_step_rank": 4,
}


class LowByteTokenizer(ByteTokenizer):
    """Any token id is text: that of its lowest byte."""

    def decode(self, tokens: Sequence[int]) -> str:
        return super().decode([token % 256 for token in tokens])


def tiny_model(config: dict[str, Any], dtype: mx.Dtype = mx.float32) -> Model:
    """A model with random weights, the same at every call."""
    graph = tiny_graph(config, dtype)
    name = f"tiny-{config['model_type']}"
    dtype_name = str(dtype).rpartition(".")[2]
    profile = profile_from_config(config, name=name, fingerprint="f" * 16, dtype=dtype_name)
    artifact = Artifact(name, name, Path(), "f" * 16, dtype_name, 0, 0, 0.0)
    return Model(name, Path(), profile, LowByteTokenizer(), graph, artifact, build_engine(256, "cpu"))


def tiny_graph(config: dict[str, Any], dtype: mx.Dtype = mx.float32) -> Any:
    """mlx-lm's model of a config with random weights, the same at every call.

    Noise on top of mlx-lm's own weights, since some of them are zeros that would hide whatever they weigh.
    """
    model_class, arguments_class = classes_of(config)
    mx.random.seed(0)
    # Some architectures edit the nested part of a config.
    graph = model_class(arguments_class.from_dict(deepcopy(config)))
    graph.update(tree_map(_with_noise, graph.parameters()))
    graph.set_dtype(dtype)
    mx.eval(graph.parameters())
    bind_attention(graph)
    return graph


def classes_of(config: dict[str, Any]) -> tuple[Any, Any]:
    """mlx-lm's classes of a model and of its arguments."""
    return signature(load_model).parameters["get_model_classes"].default(config=config)


def _with_noise(weight: mx.array) -> mx.array:
    if not mx.issubdtype(weight.dtype, mx.floating):
        return weight
    return weight + (0.05 * mx.random.normal(weight.shape)).astype(weight.dtype)
