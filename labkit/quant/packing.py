"""Packing: how the weights of one matrix are stored, and what MLX can store. Data only, no mlx."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labkit.core.errors import LabkitError


class QuantizationRefused(LabkitError):
    """A recipe that does not fit the model, MLX or the quantizer, or an artifact that is not as planned."""


@dataclass(frozen=True, slots=True)
class Mode:
    """A number format of MLX with the bits and group sizes it takes, the usual one first.

    Checked against mx.quantize of mlx 0.32.4; affine takes 1 bit too, which mlx-lm does not.
    """

    name: str
    bits: tuple[int, ...]
    group_sizes: tuple[int, ...]


MODES: Mapping[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("affine", (4, 2, 3, 5, 6, 8), (64, 32, 128)),
        Mode("mxfp4", (4,), (32,)),
        Mode("nvfp4", (4,), (16,)),
        Mode("mxfp8", (8,), (32,)),
    )
}


@dataclass(frozen=True, slots=True)
class Packing:
    """bits a weight, and group_size weights along a row to one scale (and one bias in `affine`)."""

    mode: str
    bits: int
    group_size: int

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise QuantizationRefused("a mode of MLX was needed", got=repr(self.mode), options=tuple(MODES))
        mode = MODES[self.mode]
        for name, value, valid in (
            ("bits", self.bits, mode.bits),
            ("group_size", self.group_size, mode.group_sizes),
        ):
            if type(value) is not int or value not in valid:
                raise QuantizationRefused(
                    f"{name} that {mode.name} takes were needed", got=repr(value), options=sorted(valid)
                )

    @classmethod
    def of(cls, mode: str, bits: int | None = None, group_size: int | None = None) -> Packing:
        """A packing whose unstated numbers are the usual ones of its mode."""
        known = MODES.get(mode, Mode(mode, (0,), (0,)))
        return cls(
            mode,
            known.bits[0] if bits is None else bits,
            known.group_sizes[0] if group_size is None else group_size,
        )

    def settings(self) -> dict[str, Any]:
        """As mlx-lm states it in config.json, and as `to_quantized` takes it."""
        return {"group_size": self.group_size, "bits": self.bits, "mode": self.mode}
