"""Profile of a model from its config.json: what the planner may know of it.

Reads no tensors, imports no mlx.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labkit.core.errors import ModelUnavailable
from labkit.core.spec import Profile
from labkit.model.artifact import Artifact
from labkit.model.family import family_of
from labkit.model.layers import layer_kinds
from labkit.model.origin import read_config

# The architectures that labkit's own oracle tests run on.
REGISTERED = frozenset({"llama", "gemma3_text"})
CONTEXT_KEYS = (
    *("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length", "n_ctx"),
    "model_max_length",
)
# A config that states no context length gets this; one without attention layers has no limit.
UNSTATED_CONTEXT = 4096
NO_LIMIT = 2**31 - 1
# What mlx-lm fills in where a config of the architecture is silent.
_GEMMA3_TEXT = {
    "hidden_size": 1152,
    "num_hidden_layers": 26,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "vocab_size": 262144,
    "sliding_window": 512,
    "max_position_embeddings": 32768,
}
_GEMMA3 = {**_GEMMA3_TEXT, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208}
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma3_text": _GEMMA3_TEXT,
    "gemma3": _GEMMA3,
    "cohere2": {"sliding_window": 4096},
    "gpt_oss": {"sliding_window": 128},
}


def read_profile(artifact: Artifact) -> Profile:
    """The Profile of a measured artifact; its dtype is the measured one."""
    return profile_from_config(
        read_config(artifact.path),
        name=artifact.name,
        family=artifact.family,
        fingerprint=artifact.fingerprint,
        dtype=artifact.dtype,
    )


def profile_from_config(
    config: Mapping[str, Any],
    *,
    name: str,
    family: str | None = None,
    fingerprint: str = "",
    dtype: str | None = None,
) -> Profile:
    """The Profile of a config; a nested `text_config` is read under the outer architecture.

    A context length that is not stated is 4,096 tokens, or 2**31 - 1 where no layer attends.
    Raises ModelUnavailable where model_type, layers, vocabulary or hidden size is missing.
    """
    text = _text_config(config)
    layers = layer_kinds(text)
    hidden, vocab = _integer(text, "hidden_size", "d_model", "n_embd"), _integer(text, "vocab_size")
    heads = _optional(text, "num_attention_heads", "n_head", "n_heads") or 0
    return Profile(
        name=name,
        family=family or family_of(name),
        architecture=text["model_type"],
        layers=layers,
        context_length=_optional(text, *CONTEXT_KEYS) or _unstated_context(layers),
        vocab_size=vocab,
        hidden_size=hidden,
        heads=heads,
        kv_heads=(_optional(text, "num_key_value_heads", "num_kv_heads") or heads) or None,
        head_dim=_optional(text, "head_dim") or (hidden // heads if heads else None),
        dtype=dtype or str(text.get("torch_dtype") or text.get("dtype") or "unknown"),
        fingerprint=fingerprint,
        sliding_window=_sliding_window(text) if "sliding" in layers else None,
        status="registered" if text["model_type"] in REGISTERED else "universal",
    )


def _text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The text model's settings over the outer ones, under the outer model_type, which mlx-lm loads."""
    nested = config.get("text_config")
    merged = {**config, **nested} if isinstance(nested, Mapping) else dict(config)
    architecture = config.get("model_type")
    if not isinstance(architecture, str) or not architecture:
        raise ModelUnavailable("model_type was needed in config.json", got=architecture)
    stated = {key: value for key, value in merged.items() if value is not None}
    return {**_DEFAULTS.get(architecture, {}), **stated, "model_type": architecture}


def _unstated_context(layers: tuple[str, ...]) -> int:
    return NO_LIMIT if set(layers) == {"recurrent"} else UNSTATED_CONTEXT


def _sliding_window(text: Mapping[str, Any]) -> int:
    return _integer(text, "sliding_window", "attention_window_size", "attention_chunk_size")


def _integer(text: Mapping[str, Any], *keys: str) -> int:
    value = _optional(text, *keys)
    if value is None:
        raise ModelUnavailable(
            f"{keys[0]} was needed in config.json as a positive integer", got=text.get(keys[0])
        )
    return value


def _optional(text: Mapping[str, Any], *keys: str) -> int | None:
    """The first of the keys that holds a positive integer."""
    return next((v for k in keys if isinstance(v := text.get(k), int) and v > 0), None)
