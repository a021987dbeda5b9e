"""Profile of a model: its config.json, and what mlx-lm builds of it. Reads no tensors.

What a config leaves out is mlx-lm's own default. Imports mlx-lm only when a profile is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labkit.core.errors import ModelUnavailable
from labkit.core.spec import CacheShape, LayerKind, Profile
from labkit.model.artifact import Artifact
from labkit.model.family import family_of
from labkit.model.layers import layer_kind
from labkit.model.origin import read_config
from labkit.model.registered import REGISTERED
from labkit.model.skeleton import build_skeleton

# A config that states no context length gets this; one without attention layers has no limit.
UNSTATED_CONTEXT = 4096
NO_LIMIT = 2**31 - 1
CONTEXT_KEYS = (
    *("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length", "n_ctx"),
    *("model_max_length", "block_size", "max_context_length"),
)
_HIDDEN_KEYS = ("hidden_size", "d_model", "n_embd", "model_dim", "hidden_dim")
_HEADS_KEYS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "num_query_heads")
_VOCABULARY_KEYS = ("vocab_size", "num_vocab")
_CHOSEN_KEYS = (
    *("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts"),
)


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
    """The Profile of a config, of any architecture that mlx-lm has.

    A context length that neither config nor mlx-lm states is 4,096 tokens, or 2**31 - 1 where no layer
    attends. Raises ModelUnavailable where mlx-lm cannot build a model of the config, or run it here.
    """
    architecture, stated = _architecture(config), _stated(config)
    dtype = dtype or str(stated.get("torch_dtype") or stated.get("dtype") or "unknown")
    skeleton = build_skeleton(config, dtype)
    settings = {**stated, **skeleton.arguments}
    kinds: list[LayerKind] = [layer_kind(cache) for cache in skeleton.caches]
    layers = tuple(kinds)
    return Profile(
        name=name,
        family=family or family_of(name),
        architecture=architecture,
        layers=layers,
        context_length=_context_length(stated, settings, layers),
        vocab_size=skeleton.vocab_size or _integer(settings, *_VOCABULARY_KEYS),
        hidden_size=_integer(settings, *_HIDDEN_KEYS),
        dtype=dtype,
        fingerprint=fingerprint,
        status="registered" if skeleton.module in REGISTERED else "universal",
        moe=skeleton.moe,
        experts=skeleton.experts,
        experts_per_token=_chosen(settings) if skeleton.moe else 0,
        caches=skeleton.caches,
        depth=skeleton.depth,
        quantizes=skeleton.quantizes,
        **_attention(skeleton.caches, settings),
    )


def _attention(caches: tuple[CacheShape, ...], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Heads, the geometry of the first cache with keys, and the smallest window."""
    attending = [leaf for cache in caches for leaf in cache.leaves() if leaf.kv_heads]
    if not attending:
        return {"heads": 0, "kv_heads": None, "head_dim": None}
    return {
        "heads": _heads(settings),
        "kv_heads": attending[0].kv_heads,
        "head_dim": attending[0].key_size,
        "sliding_window": min((leaf.window for leaf in attending if leaf.window), default=None),
    }


def _architecture(config: Mapping[str, Any]) -> str:
    architecture = config.get("model_type")
    if not isinstance(architecture, str) or not architecture:
        raise ModelUnavailable("model_type was needed in config.json", got=architecture)
    return architecture


def _stated(config: Mapping[str, Any]) -> dict[str, Any]:
    """The text model's settings over the outer ones, as far as the config states them."""
    nested = config.get("text_config")
    merged = {**config, **nested} if isinstance(nested, Mapping) else dict(config)
    return {key: value for key, value in merged.items() if value is not None}


def _context_length(
    stated: Mapping[str, Any], settings: Mapping[str, Any], layers: tuple[LayerKind, ...]
) -> int:
    """As stated. Where no layer attends, the default of an argument is no limit of the model."""
    found = _optional(stated, *CONTEXT_KEYS)
    if found is None and set(layers) == {"recurrent"}:
        return NO_LIMIT
    return found or _optional(settings, *CONTEXT_KEYS) or UNSTATED_CONTEXT


def _heads(settings: Mapping[str, Any]) -> int:
    """Heads of a layer's queries, the most where layers differ (OpenELM)."""
    listed = next((v for k in _HEADS_KEYS if isinstance(v := settings.get(k), list) and v), None)
    return max(listed) if listed else _integer(settings, *_HEADS_KEYS)


def _chosen(settings: Mapping[str, Any]) -> int:
    """Experts that a token is sent to."""
    nested = settings.get("ffn_config")
    return _integer({**(nested if isinstance(nested, Mapping) else {}), **settings}, *_CHOSEN_KEYS)


def _integer(settings: Mapping[str, Any], *keys: str) -> int:
    value = _optional(settings, *keys)
    if value is None:
        raise ModelUnavailable(
            f"{keys[0]} was needed in config.json as a positive integer", got=settings.get(keys[0])
        )
    return value


def _optional(settings: Mapping[str, Any], *keys: str) -> int | None:
    """The first of the keys that holds a positive integer."""
    return next((v for k in keys if isinstance(v := settings.get(k), int) and v > 0), None)
