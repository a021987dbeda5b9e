"""Layers: which kind each layer of a model is (full, sliding, recurrent), read from its config.

The kinds are those of the caches that mlx-lm makes, since mlx-lm is the oracle: a bare `sliding_window`
(Mistral, Qwen2, Gemma 2) gives full layers there; layers without a cache (Nemotron-H's MLPs) are not listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, islice
from typing import Any

from labkit.core.errors import ModelUnavailable
from labkit.core.spec import LayerKind

Config = Mapping[str, Any]
Kinds = tuple[LayerKind, ...]

KIND_NAMES: Mapping[str, LayerKind] = {
    **dict.fromkeys(("full_attention", "attention", "global", "global_attention", "full"), "full"),
    **dict.fromkeys(
        ("sliding_attention", "local", "local_attention", "sliding", "chunked_attention"), "sliding"
    ),
    **dict.fromkeys(
        ("linear_attention", "recurrent", "mamba", "mamba2", "conv", "rwkv", "linear"), "recurrent"
    ),
}
LIST_KEYS = ("layer_types", "layers_block_type", "block_types", "_block_types")
# Every n-th layer is full, the others slide: the periods that mlx-lm assumes where a config states none.
PERIODS: Mapping[str, int] = {"gemma3": 6, "gemma3_text": 6, "cohere2": 4, "olmo3": 4, "gpt_oss": 2}
# mlx-lm reads the period of these and never their layer_types.
PERIOD_ONLY = frozenset({"gemma3", "gemma3_text", "cohere2"})
RECURRENT = frozenset({"mamba", "mamba2", "falcon_mamba", "rwkv7", "falcon_h1"})


def layer_kinds(config: Config) -> Kinds:
    """The kind of each layer with a cache. config: the text model's, with the outer `model_type`.

    Raises ModelUnavailable for a layer type that is not known or a config without a number of layers.
    """
    rules = (
        _by_architecture,
        _by_list,
        _by_period,
        _by_interval,
        _by_index,
        _by_attention_period,
        _by_string,
    )
    count = _layer_count(config)
    for rule in rules:
        kinds = rule(config, count)
        if kinds:
            return kinds
    return ("full",) * count


def _layer_count(config: Config) -> int:
    for key in ("num_hidden_layers", "n_layers", "n_layer", "num_layers"):
        if isinstance(config.get(key), int) and config[key] > 0:
            return config[key]
    raise ModelUnavailable("the number of layers was needed in config.json (num_hidden_layers)")


def _by_architecture(config: Config, count: int) -> Kinds:
    return ("recurrent",) * count if config.get("model_type") in RECURRENT else ()


def _by_list(config: Config, count: int) -> Kinds:
    """One name for each layer; a shorter list repeats (RecurrentGemma)."""
    key = next((k for k in LIST_KEYS if config.get(k)), None)
    if key is None or config.get("model_type") in PERIOD_ONLY:
        return ()
    names: Sequence[str] = config[key]
    unknown = sorted({str(n) for n in names} - set(KIND_NAMES))
    if unknown:
        raise ModelUnavailable(
            "layer types that labkit knows were needed in config.json",
            got=unknown,
            options=sorted(KIND_NAMES),
        )
    # RecurrentGemma's attention is always windowed.
    attending: LayerKind = "sliding" if "attention_window_size" in config else "full"
    known: Mapping[str, LayerKind] = {n: attending if k == "full" else k for n, k in KIND_NAMES.items()}
    return tuple(known[name] for name in islice(cycle(names), count))


def _by_period(config: Config, count: int) -> Kinds:
    """Every n-th layer is full (Gemma 3: 6th), or letters as in `LLLG` (EXAONE 4)."""
    period = config.get("sliding_window_pattern") or PERIODS.get(str(config.get("model_type")))
    if isinstance(period, str):
        return _letters(islice(cycle(period), count), {"L": "sliding", "G": "full"})
    return _every(period, "sliding", count) if period else ()


def _by_interval(config: Config, count: int) -> Kinds:
    """Every n-th layer attends, the others are linear (Qwen3-Next)."""
    interval = config.get("full_attention_interval")
    return _every(interval, "recurrent", count) if interval else ()


def _by_index(config: Config, count: int) -> Kinds:
    """Positions of the attending layers (LFM2), or of the linear ones, counted from 1 (Kimi Linear)."""
    attending = config.get("full_attn_idxs")
    if attending:
        return _pick(lambda i: i in attending, count)
    linear = (config.get("linear_attn_config") or {}).get("kda_layers")
    return _pick(lambda i: i + 1 not in linear, count) if linear else ()


def _by_attention_period(config: Config, count: int) -> Kinds:
    """Jamba: layer i attends where i % period == offset."""
    period, offset = config.get("attn_layer_period"), config.get("attn_layer_offset")
    return _pick(lambda i: i % period == offset, count) if period and offset is not None else ()


def _by_string(config: Config, _: int) -> Kinds:
    """Nemotron-H: `M` is a Mamba layer, `*` attends; the rest has no cache."""
    return _letters(config.get("hybrid_override_pattern") or "", {"M": "recurrent", "*": "full"})


def _letters(letters: Iterable[str], known: Mapping[str, LayerKind]) -> Kinds:
    return tuple(known[letter] for letter in letters if letter in known)


def _every(period: int, others: LayerKind, count: int) -> Kinds:
    return tuple("full" if (i + 1) % period == 0 else others for i in range(count))


def _pick(attends: Callable[[int], bool], count: int) -> Kinds:
    return tuple("full" if attends(i) else "recurrent" for i in range(count))
