"""Finite: whether stored floats are numbers, told from their bits without decoding them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

# A float whose exponent bits are all set is NaN or infinite; F8_E4M3 has no infinity and one NaN.
_SPECIAL: Mapping[str, tuple[type[np.unsignedinteger], int]] = {
    "F64": (np.uint64, 0x7FF0_0000_0000_0000),
    "F32": (np.uint32, 0x7F80_0000),
    "F16": (np.uint16, 0x7C00),
    "BF16": (np.uint16, 0x7F80),
    "F8_E4M3": (np.uint8, 0x7F),
    "F8_E5M2": (np.uint8, 0x7C),
    "F8_E8M0": (np.uint8, 0xFF),
}
# What older checkpoints hold beside the weights: masks may be infinite, and mlx-lm drops them.
_BUFFERS = ("masked_bias", "attn_mask", "causal_mask", "inv_freq")


def all_finite(data: bytes, dtype: str) -> bool:
    """Whether no element is NaN or infinite. dtype: safetensors code; integers are always finite."""
    if dtype not in _SPECIAL:
        return True
    kind, mask = _SPECIAL[dtype]
    special = kind(mask)
    return not np.any((np.frombuffer(data, kind) & special) == special)


def is_buffer(name: str) -> bool:
    """Whether a tensor is a constant that training frameworks keep, and not a weight."""
    return name.endswith(_BUFFERS)
