"""Rotary scaling of GGUF files as mlx-lm's `rope_scaling`: equal in effect, or refused by name and value.

Sources: YaRN (arXiv 2309.00071), LongRoPE (arXiv 2402.13753), the frequency bands of Llama 3.1, and the
meaning that llama.cpp gives to the keys below `rope.scaling.`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from labkit.model.gguf.metadata import Field, real, refused
from labkit.model.gguf.summary import Summary

FREQS = "rope_freqs.weight"
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
_TYPE = "rope.scaling.type"
_FACTOR = real("rope.scaling.factor", 1.0)
_ORIGINAL = Field("rope.scaling.original_context_length", int, "max_position_embeddings", low=2)
_ATTENTION = real("rope.scaling.attn_factor", 1.0)
# What mlx-lm has no setting for, with the values that change nothing.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "rope.scale_linear": (0.0, 1.0),
    "rope.scaling.yarn_ext_factor": (1.0,),
    "rope.scaling.yarn_attn_factor": (1.0,),
    "rope.scaling.yarn_log_multiplier": (0.0,),
}
KEYS = frozenset(
    {_TYPE, _FACTOR.key, _ORIGINAL.key, _ATTENTION.key, *_NEUTRAL}
    | {"rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"}
)
# Llama 3.1 and 3.2 were stretched from this length; their GGUF files do not say so.
_LLAMA3_CONTEXT = 8192
# Converters make the factors in float32: at a factor of 32 the error of a band's inner factors reaches 4e-5.
_FACTOR_RTOL = 1e-4

Read = Callable[[Field], Any]


def rope_scaling(
    name: str, summary: Summary, config: Mapping[str, Any], supported: frozenset[str]
) -> dict[str, Any]:
    """Config entries for the file's scaling; empty where it has none.

    supported: the types that mlx-lm's model of this architecture computes: linear, yarn, llama3, longrope.
    Raises ModelUnavailable for another type, and for values that mlx-lm would compute differently.
    """
    _check_neutral(name, summary.metadata)

    def read(field: Field) -> Any:
        return field.read(name, summary.metadata, config)

    kind = _kind(name, summary)
    entries = _ENTRIES[kind](name, summary, config, read)
    if entries and kind not in supported:
        raise refused(f"{name}.{_TYPE}", kind, sorted(supported | {"none"}))
    return entries


def _kind(name: str, summary: Summary) -> str:
    """The type, as llama.cpp finds it: tensors decide where the key is silent, then linear is meant."""
    stated = summary.metadata.get(f"{name}.{_TYPE}", "none" if FREQS in summary.shapes else "linear")
    if FREQS in summary.shapes and stated != "none":
        raise refused(f"{name}.{_TYPE}", f"{stated}, with the tensor {FREQS}", ("none",))
    if LONG in summary.shapes or SHORT in summary.shapes:
        stated = "longrope" if f"{name}.{_TYPE}" not in summary.metadata else stated
    kind = "llama3" if FREQS in summary.shapes else stated
    if not isinstance(kind, str) or kind not in _ENTRIES or stated == "llama3":
        raise refused(f"{name}.{_TYPE}", stated, sorted(k for k in _ENTRIES if k != "llama3"))
    return kind


def _check_neutral(name: str, metadata: Mapping[str, Any]) -> None:
    for key, values in _NEUTRAL.items():
        if metadata.get(f"{name}.{key}", values[0]) not in values:
            raise refused(f"{name}.{key}", metadata[f"{name}.{key}"], values)


def _none(_name: str, _summary: Summary, _config: Mapping[str, Any], _read: Read) -> dict[str, Any]:
    return {}


def _linear(name: str, _summary: Summary, _config: Mapping[str, Any], read: Read) -> dict[str, Any]:
    _plain_attention(name, read)
    factor = read(_FACTOR)
    return {} if factor == 1.0 else _entries("linear", factor=factor)


def _yarn(name: str, _summary: Summary, _config: Mapping[str, Any], read: Read) -> dict[str, Any]:
    _plain_attention(name, read)
    factor = read(_FACTOR)
    betas = {k: read(real(f"rope.scaling.yarn_{k}", v)) for k, v in (("beta_fast", 32.0), ("beta_slow", 1.0))}
    if factor == 1.0:
        return {}
    return _entries("yarn", factor=factor, original_max_position_embeddings=read(_ORIGINAL), **betas)


def _longrope(name: str, summary: Summary, config: Mapping[str, Any], read: Read) -> dict[str, Any]:
    """Factors of every rotary pair. mlx-lm applies the long ones at every length."""
    for tensor in (LONG, SHORT):
        if tensor not in summary.shapes:
            raise refused(f"{name}.{_TYPE}", f"longrope, without the tensor {tensor}")
    original, context = read(_ORIGINAL), config["max_position_embeddings"]
    ratio = max(1.0, context / original)
    computed = math.sqrt(1 + math.log(ratio) / math.log(original))
    stated = read(_ATTENTION)
    if not math.isclose(stated, computed, rel_tol=1e-5):
        raise refused(f"{name}.{_ATTENTION.key}", stated, (f"{computed:.6g}, which mlx-lm computes",))
    factors = {k: _factors(name, summary, t) for k, t in (("long_factor", LONG), ("short_factor", SHORT))}
    return {**_entries("longrope", **factors), "original_max_position_embeddings": original}


def _factors(name: str, summary: Summary, tensor: str) -> list[float]:
    values = summary.read(tensor).astype(np.float64)
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise refused(f"{name}: the values of {tensor}", values.tolist(), ("positive numbers",))
    return values.tolist()


def _llama3(name: str, summary: Summary, config: Mapping[str, Any], read: Read) -> dict[str, Any]:
    """The parameters that give the file's factors, found and then checked against every one of them."""
    _plain_attention(name, read)
    factors = summary.read(FREQS).astype(np.float64)
    dims = config["head_dim"]
    waves = 2 * np.pi * config["rope_theta"] ** (np.arange(0, dims, 2) / dims)
    if factors.shape != waves.shape or not (np.isfinite(factors) & (factors >= 1)).all():
        raise refused(
            f"{name}: the values of {FREQS}", factors.round(4).tolist(), (f"{dims // 2} numbers from 1 on",)
        )
    if np.all(factors == 1):
        return {}
    original, factor = read(replace(_ORIGINAL, default=_LLAMA3_CONTEXT)), float(factors.max())
    for low, high in _bands(factors, waves, original):
        if np.allclose(factors, _stretch(waves, factor, original / low, original / high), _FACTOR_RTOL, 0):
            return _entries(
                "llama3",
                factor=factor,
                low_freq_factor=low,
                high_freq_factor=high,
                original_max_position_embeddings=original,
            )
    raise refused(
        f"{name}: the values of {FREQS}", factors.round(4).tolist(), ("the factors of a Llama 3 scaling",)
    )


def _stretch(waves: np.ndarray, factor: float, longest: float, shortest: float) -> np.ndarray:
    """By what each wavelength is stretched: `factor` from the longest on, 1 to the shortest, a blend between.

    The blend is linear in frequency, as in `Llama3RoPE` of mlx-lm.
    """
    blend = np.clip((1 / waves - 1 / longest) / (1 / shortest - 1 / longest), 0, 1)
    return 1 / ((1 - blend) / factor + blend)


def _bands(factors: np.ndarray, waves: np.ndarray, original: int) -> list[tuple[float, float]]:
    """(low, high) to try: Llama's own, then those that a line through two blended factors gives."""
    bands, factor = [(1.0, 4.0)], factors.max()
    inner = np.flatnonzero((factors > 1) & (factors < factor))
    if len(inner) > 1:
        ends = inner[[0, -1]]
        blend = (1 / factors[ends] - 1 / factor) / (1 - 1 / factor)
        turns = original / waves[ends]
        width = (turns[0] - turns[1]) / max(blend[0] - blend[1], 1e-9)
        low = turns[1] - blend[1] * width
        bands.append((float(np.round(low, 4)), float(np.round(low + width, 4))))
    return [(low, high) for low, high in bands if 0 < low < high]


def _plain_attention(name: str, read: Read) -> None:
    if read(_ATTENTION) != 1.0:
        raise refused(f"{name}.{_ATTENTION.key}", read(_ATTENTION), (1.0,))


def _entries(kind: str, **values: Any) -> dict[str, Any]:
    return {"rope_scaling": {"rope_type": kind, "type": kind, **values}}


_ENTRIES: Mapping[str, Callable[[str, Summary, Mapping[str, Any], Read], dict[str, Any]]] = {
    "none": _none,
    "linear": _linear,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
}
