"""Tensors of GGUF files as data: what each is called and shaped here and there, and what is done to its rows.

Knows names, shapes and transforms; neither files nor architectures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Transform:
    """apply: array -> array. rows: it only moves whole rows of axis 0, so it is right for packed rows too."""

    apply: Callable[[np.ndarray], np.ndarray]
    rows: bool


@dataclass(frozen=True, slots=True)
class Weight:
    """What becomes of one tensor of the file, decided.

    target: its name in the model directory; None where it is only read for the config. shape: as written.
    packable: whether it belongs to a linear, embedding or expert layer, which MLX can hold quantized.
    module: that layer's path in the loaded model; several weights share one where mlx-lm stacks them.
    """

    target: str | None
    shape: tuple[int, ...]
    transform: Transform | None
    packable: bool
    module: str | None


@dataclass(frozen=True, slots=True)
class Tensor:
    """One row of an architecture's table. target: the new name, None where it is only read for the config.

    shape: the file's, outermost first; a string names an entry of the config or of `sizes`.
    transform: what is done to it, given the config. written: the new shape where it is another.
    packable: False for a norm that has two dimensions. module: see Weight.
    """

    target: str | None
    shape: tuple[str | int, ...]
    transform: Callable[[Config], Transform] | None = None
    written: tuple[str | int, ...] | None = None
    packable: bool = True
    module: str | None = None

    def file_shape(self, config: Config) -> tuple[int, ...]:
        return _resolve(self.shape, config)

    def weight(self, config: Config, prefix: str = "", expert: int = 0) -> Weight:
        """The Weight of this row in one layer, whose names begin with `prefix`."""
        transform = self.transform(config) if self.transform else None
        shape = _resolve(self.written or self.shape, config)
        movable = transform is None or transform.rows
        named = self.target is not None and self.target.endswith(".weight")
        packable = self.packable and movable and named and len(shape) > 1
        target = None if self.target is None else prefix + self.target.format(expert=expert)
        module = prefix + self.module if self.module else str(target).removesuffix(".weight")
        return Weight(target, shape, transform, packable, module if packable else None)


def sizes(config: Config) -> dict[str, int]:
    """Sizes that follow from a config, by the names that tables use."""
    head, heads, kv_heads = (config[k] for k in ("head_dim", "num_attention_heads", "num_key_value_heads"))
    return {
        "q_rows": heads * head,
        "kv_rows": kv_heads * head,
        "qkv_rows": (heads + 2 * kv_heads) * head,
        "gate_up_rows": 2 * config["intermediate_size"],
        "rotary_pairs": int(head * config.get("partial_rotary_factor", 1.0)) // 2,
    }


def unpermute(heads: str) -> Callable[[Config], Transform]:
    """Undo llama.cpp's interleaving of rotary pairs within each head: `(heads * d, ...)` -> the same shape.

    heads: the config entry that holds their number.
    """

    def bind(config: Config) -> Transform:
        count, half = config[heads], config["head_dim"] // 2

        def apply(array: np.ndarray) -> np.ndarray:
            pairs = array.reshape(count, half, 2, *array.shape[1:])
            return pairs.swapaxes(1, 2).reshape(array.shape)

        return Transform(apply, rows=True)

    return bind


def minus_one(_: Config) -> Transform:
    """Norms of Gemma: the file holds 1 + w, the model adds the 1 itself."""
    return Transform(lambda array: array - 1, rows=False)


def as_row(_: Config) -> Transform:
    """A vector `(n)` as the matrix `(1, n)` of a linear layer with one output."""
    return Transform(lambda array: array[None], rows=False)


def _resolve(shape: tuple[str | int, ...], config: Config) -> tuple[int, ...]:
    known = {**config, **sizes(config)}
    return tuple(known[n] if isinstance(n, str) else n for n in shape)
