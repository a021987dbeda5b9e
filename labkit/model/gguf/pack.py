"""GGUF blocks as MLX affine groups of 32: the same numbers in MLX's layout, nothing rounded.

A weight is `code * scale + bias` there, with f32 scales and biases. Each product has at most 22 significant
bits and is exact in f32, so the sum is rounded once, as in GGUF's own formulas. Zeros of the symmetric types
come out as +0.0 where GGUF's formula keeps the scale's sign; see `SYMMETRIC`.
Source of the block layouts: ggml's `block_q4_0` ... `block_q5_K`; of the packing: mlx's `quantize`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

GROUP = 32
# code * scale - offset * scale is +0.0 at code == offset, for a negative scale too: no group says -0.0.
SYMMETRIC = frozenset(
    (GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q5_0, GGMLQuantizationType.Q8_0),
)


@dataclass(frozen=True, slots=True)
class Groups:
    """Blocks taken apart. codes: uint8 `(rows, groups, 32)`. scales, biases: float32 `(rows, groups)`."""

    codes: np.ndarray
    scales: np.ndarray
    biases: np.ndarray

    def values(self) -> np.ndarray:
        """The weights, float32 `(rows, groups * 32)`."""
        values = self.codes * self.scales[..., None] + self.biases[..., None]
        return values.reshape(len(values), -1)

    def words(self, bits: int) -> np.ndarray:
        """The codes as MLX stores them: a little-endian bit stream, uint32 `(rows, groups * bits)`."""
        return _WORDS[bits](self.codes).reshape(len(self.codes), -1).view("<u4")


@dataclass(frozen=True, slots=True)
class Layout:
    """One GGUF type. bits: of a code. split: uint8 `(blocks, block bytes)` -> codes, scales and biases."""

    bits: int
    split: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]

    def groups(self, rows: np.ndarray, kind: GGMLQuantizationType) -> Groups:
        """Take stored rows apart: uint8 `(rows, row_bytes)` -> groups."""
        codes, scales, biases = self.split(rows.reshape(-1, GGML_QUANT_SIZES[kind][1]))
        shape = (len(rows), -1)
        return Groups(codes.reshape(*shape, GROUP), scales.reshape(shape), biases.reshape(shape))


Parts = tuple[np.ndarray, np.ndarray, np.ndarray]


def _q4_0(blocks: np.ndarray) -> Parts:
    scale = _half(blocks, 0)
    return _nibbles(blocks[:, 2:]), scale, np.float32(-8) * scale


def _q4_1(blocks: np.ndarray) -> Parts:
    return _nibbles(blocks[:, 4:]), _half(blocks, 0), _half(blocks, 2)


def _q5_0(blocks: np.ndarray) -> Parts:
    scale = _half(blocks, 0)
    return _nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6]), scale, np.float32(-16) * scale


def _q5_1(blocks: np.ndarray) -> Parts:
    return _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8]), _half(blocks, 0), _half(blocks, 2)


def _q8_0(blocks: np.ndarray) -> Parts:
    scale = _half(blocks, 0)
    return blocks[:, 2:] ^ np.uint8(0x80), scale, np.float32(-128) * scale


def _q4_k(blocks: np.ndarray) -> Parts:
    return _nibbles(blocks[:, 16:].reshape(-1, GROUP)), *_k_scales(blocks)


def _q5_k(blocks: np.ndarray) -> Parts:
    low = _nibbles(blocks[:, 48:].reshape(-1, GROUP)).reshape(-1, 8, GROUP)
    shifts = np.arange(8, dtype=np.uint8)[:, None]
    high = (blocks[:, None, 16:48] >> shifts) & np.uint8(1)
    return low | high << np.uint8(4), *_k_scales(blocks)


def _k_scales(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and biases of the eight groups of a K block: six bits each, times the block's own two halves."""
    scales, minima, upper = (blocks[:, at : at + 4] for at in (4, 8, 12))
    scale = np.hstack([scales & 63, (upper & 15) | (scales >> 6) << 4])
    minimum = np.hstack([minima & 63, (upper >> 4) | (minima >> 6) << 4])
    return _half(blocks, 0) * scale.astype(np.float32), -(_half(blocks, 2) * minimum.astype(np.float32))


def _half(blocks: np.ndarray, at: int) -> np.ndarray:
    """The float16 at a byte of every block, as float32 `(blocks, 1)`."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(data: np.ndarray) -> np.ndarray:
    """uint8 `(n, bytes)` -> `(n, 2 * bytes)`: all low halves, then all high halves."""
    return np.hstack([data & np.uint8(15), data >> np.uint8(4)])


def _fifth_bits(data: np.ndarray) -> np.ndarray:
    """uint8 `(n, 4)` -> `(n, 32)`: one bit each, in the place of the fifth."""
    return np.unpackbits(np.ascontiguousarray(data), axis=1, bitorder="little") << np.uint8(4)


def _words_of_4(codes: np.ndarray) -> np.ndarray:
    return codes[..., 0::2] | codes[..., 1::2] << np.uint8(4)


def _words_of_5(codes: np.ndarray) -> np.ndarray:
    eight = codes.reshape(*codes.shape[:-1], -1, 8).astype("<u8")
    joined = np.bitwise_or.reduce(eight << (np.arange(8, dtype="<u8") * np.uint64(5)), axis=-1)
    return np.ascontiguousarray(joined[..., None].view(np.uint8)[..., :5])


def _words_of_8(codes: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(codes)


_WORDS: Mapping[int, Callable[[np.ndarray], np.ndarray]] = {4: _words_of_4, 5: _words_of_5, 8: _words_of_8}
LAYOUTS: Mapping[GGMLQuantizationType, Layout] = {
    GGMLQuantizationType.Q4_0: Layout(4, _q4_0),
    GGMLQuantizationType.Q4_1: Layout(4, _q4_1),
    GGMLQuantizationType.Q4_K: Layout(4, _q4_k),
    GGMLQuantizationType.Q5_0: Layout(5, _q5_0),
    GGMLQuantizationType.Q5_1: Layout(5, _q5_1),
    GGMLQuantizationType.Q5_K: Layout(5, _q5_k),
    GGMLQuantizationType.Q8_0: Layout(8, _q8_0),
}
