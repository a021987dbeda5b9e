"""Matrices: what one decoded token is multiplied with, as the tensors of an artifact say. Pure.

Knows shapes and packing, not what a layer is called: a tensor of two axes multiplies every token, one of
three holds experts, of which a token is sent to some.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labkit.core.spec import Profile
from labkit.model.artifact import read_quantization
from labkit.model.cost import untied_embedding
from labkit.model.tensors import FLOATS, Tensor

_WORD_BITS = 32
_ONE_EXPERT = re.compile(r"\bexperts\.\d+\.")


@dataclass(frozen=True, slots=True)
class Packing:
    """How a weight is packed: `bits` a weight, a scale every `group_size`. mode: as mlx names it."""

    bits: int
    group_size: int
    mode: str = "affine"


@dataclass(frozen=True, slots=True)
class Matrix:
    """Weights `(rows, columns)`, unpacked, of which a token is multiplied with `used` on average a tensor.

    used: 1 of a dense layer; of experts, those that a token is sent to. nbytes: of one such matrix.
    """

    rows: int
    columns: int
    nbytes: float
    used: float = 1.0
    packing: Packing | None = None


def read_matrices(
    tensors: Mapping[str, Tensor], config: Mapping[str, Any], profile: Profile
) -> tuple[tuple[Matrix, int], ...]:
    """Every kind of matrix and how many there are of it, without an embedding table only looked up."""
    looked_up = untied_embedding(tensors, profile.vocab_size)
    found = Counter[Matrix]()
    for name, tensor in tensors.items():
        if name.endswith(".weight") and name not in looked_up and len(tensor.shape) in (2, 3):
            matrix = _matrix(tensor, tensors, config, profile)
            if matrix is not None:
                found[matrix] += 1
    return tuple(found.items())


def _matrix(
    tensor: Tensor, tensors: Mapping[str, Tensor], config: Mapping[str, Any], profile: Profile
) -> Matrix | None:
    path = tensor.name.removesuffix(".weight")
    scales = tensors.get(f"{path}.scales")
    rows, columns = tensor.shape[-2:]
    experts = tensor.shape[0] if len(tensor.shape) == 3 else 1
    used = _used(tensor, experts, profile)
    if scales is None:
        floating = tensor.dtype in FLOATS and used
        return Matrix(rows, columns, tensor.nbytes / experts, used) if floating else None
    packing = _packing(path, tensor, scales, config)
    beside = sum(t.nbytes for t in (scales, tensors.get(f"{path}.biases")) if t is not None)
    weights = columns * _WORD_BITS // packing.bits
    return Matrix(rows, weights, (tensor.nbytes + beside) / experts, used, packing)


def _used(tensor: Tensor, experts: int, profile: Profile) -> float:
    """How many matrices of a tensor a token is multiplied with; 0 of three axes that are no experts."""
    if experts > 1 or len(tensor.shape) == 3:
        return float(profile.experts_per_token) if experts == profile.experts else 0.0
    if _ONE_EXPERT.search(tensor.name) and profile.experts:
        return profile.experts_per_token / profile.experts
    return 1.0


def _packing(path: str, words: Tensor, scales: Tensor, config: Mapping[str, Any]) -> Packing:
    """As the config states it for this weight or for all; the bits are those of the stored shapes."""
    stated = read_quantization(config)
    own = stated.get(path)
    entry = own if isinstance(own, Mapping) else stated
    group = int(entry.get("group_size") or 64)
    bits = words.shape[-1] * _WORD_BITS // (scales.shape[-1] * group)
    return Packing(bits, group, str(entry.get("mode") or "affine"))
