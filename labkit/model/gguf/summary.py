"""What a GGUF file says of itself, as architectures see it: no file, no weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Summary:
    """metadata: every key with its Python value. shapes: tensor name -> shape, outermost dimension first.

    read: the float32 values of one small tensor (rotary factors), by name.
    """

    metadata: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    read: Callable[[str], np.ndarray]
