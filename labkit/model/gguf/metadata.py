"""Metadata of GGUF files: how a number of the config is read from it, and how a value is refused.

Knows the values and their checks; no architecture, no file format.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.core.errors import ModelUnavailable
from labkit.model.wording import one_line

_MAX_COUNT = 2**31 - 1
_SHOWN = 80
REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Field:
    """A number of the config. key: metadata key below the architecture's prefix.

    kind: `int` for a count, `float` for a real. default: REQUIRED, a value, or the name of another config
    entry. low, high: the range it must lie in; low itself is outside where `open_low`.
    """

    key: str
    kind: type[int] | type[float]
    default: Any = REQUIRED
    low: float = 1
    high: float = _MAX_COUNT
    open_low: bool = False

    def read(self, prefix: str, metadata: Mapping[str, Any], config: Mapping[str, Any]) -> int | float:
        """The number. Raises ModelUnavailable for one that is absent, of another type or out of range."""
        full = f"{prefix}.{self.key}"
        stated = full in metadata or not isinstance(self.default, str)
        value = uniform(metadata.get(full, self.default)) if stated else config[self.default]
        if value is REQUIRED:
            raise refused(full, "absent", (self._range(),))
        if not self._fits(value):
            raise refused(full, value, (self._range(),))
        return value if self.kind is int else shortest(value)

    def _fits(self, value: Any) -> bool:
        kinds = int if self.kind is int else int | float
        if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
            return False
        return (self.low < value if self.open_low else self.low <= value) and value <= self.high

    def _range(self) -> str:
        name = "an integer" if self.kind is int else "a number"
        return f"{name} {'above' if self.open_low else 'from'} {self.low:g} to {self.high:g}"


def count(key: str, default: Any = REQUIRED) -> Field:
    """A positive integer below 2**31."""
    return Field(key, int, default)


def real(key: str, default: Any = REQUIRED, low: float = 0, high: float = 1e30) -> Field:
    """A finite number above `low`."""
    return Field(key, float, default, low=low, high=high, open_low=True)


def epsilon(key: str) -> Field:
    """What a norm adds to its variance."""
    return real(key, high=0.1)


def uniform(value: Any) -> Any:
    """The one value of a list that states the same for every layer; anything else as it is."""
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        return value[0] if all(v == value[0] for v in value) else value
    return value


def shortest(value: float) -> float:
    """The double whose text is the shortest that names the file's float32: 1e-05, not 9.99999974e-06."""
    return float(str(np.float32(value)))


def refused(
    key: str, got: object, options: Sequence[object] = (), next_step: str | None = None
) -> ModelUnavailable:
    """The error for metadata that cannot be imported, by name and value."""
    return ModelUnavailable(
        f"GGUF metadata that labkit can import was needed: {key}",
        got=one_line(got, _SHOWN),
        options=options,
        next_step=next_step,
    )
