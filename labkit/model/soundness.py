"""Soundness: whether a config's counts can belong to the stored tensors, before anything is built of them.

A bound, no judgement: mlx-lm decides whether weights and config fit. What is refused here would make it
build a model of a size that the files cannot hold, or read whole numbers as weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from labkit.core.errors import ModelUnavailable
from labkit.model.origin import read_config
from labkit.model.tensors import Tensor, read_directory
from labkit.model.wording import first_names, one_line

_LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers", "num_transformer_layers")
# Counts and widths that are dimensions of tensors; lengths, windows and ids may be larger than any of them.
_COUNTS = re.compile(r"(^|_)(size|dim|embd|inner|heads?|experts|rank|vocab|d_model|d_state|groups?)(_|$)")
_NO_DIMENSION = re.compile(r"window|chunk|block|position|length|context|seq")
# A dimension packed at one bit a weight is stored as 32 times fewer words.
_PACKING = 32
_WHOLE = frozenset({"I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL"})


def check_directory(directory: Path) -> dict[str, Tensor]:
    """The tensors of a model directory that passes. Raises ModelUnavailable with the reason otherwise."""
    config = read_config(directory)
    _check_kinds(directory)
    tensors = read_directory(directory)
    check_sound(tensors, config)
    return tensors


def check_sound(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    """Raise ModelUnavailable where a config claims more than the tensors hold, or a weight is no float."""
    widest = max((n for t in tensors.values() for n in t.shape), default=0)
    for key, length in _listed(config):
        if length > max(len(tensors), widest):
            raise ModelUnavailable(
                f"{key} in config.json must fit the weights",
                got=f"a list of {length}; the files hold {len(tensors)} tensors, none wider than {widest}",
            )
    for key, value in _stated(config):
        limit = len(tensors) if key in _LAYERS else max(widest * _PACKING, len(tensors))
        if value > limit:
            holds = f"{len(tensors)} tensors, none wider than {widest}"
            raise ModelUnavailable(
                f"{key} in config.json must fit the weights", got=f"{_short(value)}; the files hold {holds}"
            )
    for tensor in tensors.values():
        if _whole_weight(tensor, tensors):
            raise ModelUnavailable(
                f"weights of a float dtype were needed: {one_line(tensor.name)}",
                got=f"{tensor.dtype} without scales beside it",
                next_step="fetch the model again",
            )


def _check_kinds(directory: Path) -> None:
    """Raise ModelUnavailable for a pipe or device, which whoever opens it would wait for."""
    strange = [f.name for f in directory.iterdir() if f.exists() and not (f.is_file() or f.is_dir())]
    if strange:
        raise ModelUnavailable(
            "files and folders were needed in the model directory",
            got=f"a pipe, socket or device: {first_names(sorted(strange))}",
            next_step="remove it, or fetch the model again",
        )


def _listed(config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The length of every list, such as one kind for each layer."""
    nested = config.get("text_config")
    for part in (config, nested if isinstance(nested, Mapping) else {}):
        yield from ((key, len(value)) for key, value in part.items() if isinstance(value, list))


def _stated(config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Every count of the text model, lists of them (one for each layer) one by one."""
    nested = config.get("text_config")
    for part in (config, nested if isinstance(nested, Mapping) else {}):
        for key, value in part.items():
            if key in _LAYERS or (_COUNTS.search(key) and not _NO_DIMENSION.search(key)):
                values = value if isinstance(value, list) else [value]
                yield from ((key, v) for v in values if isinstance(v, int))


def _whole_weight(tensor: Tensor, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a weight or bias is stored in whole numbers that no scales turn into floats."""
    path, _, leaf = tensor.name.rpartition(".")
    if tensor.dtype not in _WHOLE or leaf not in ("weight", "bias"):
        return False
    scaled = (f"{path}.scales", f"{path}.weight_scale", f"{path}.weight_scale_inv", f"{path}.weight_scale_2")
    return not any(name in tensors for name in scaled)


def _short(value: int) -> str:
    return str(value) if value < 10**15 else f"about 1e{value.bit_length() * 30103 // 100000}"
