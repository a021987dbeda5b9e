"""Evidence: what a calibration measured of a model, kept so that many recipes can be made from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from labkit.core.canonical import digest, plain
from labkit.quant.packing import QuantizationRefused


@dataclass(frozen=True, slots=True)
class Evidence:
    """method: the quantizer's name. source: fingerprint of the model that was measured.

    text_sha256: of the calibration text, empty where the method needs none. layers: module path -> figures
    by name. settings: whatever else decides them, such as windows and seed.
    """

    method: str
    source: str
    text_sha256: str = ""
    layers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def hash(self) -> str:
        """32 hex digits of the content: the calibration hash of an artifact."""
        return digest(self.to_json(), 32)

    def to_json(self) -> dict[str, Any]:
        return plain(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Evidence:
        """Raises QuantizationRefused for data that no `to_json` gave."""
        try:
            return cls(**data)
        except TypeError as error:
            raise QuantizationRefused("the data of a calibration were needed", got=str(error)) from error

    def check(self, method: str, source: str) -> None:
        """Raise QuantizationRefused where it was measured by another method or on another model."""
        if (self.method, self.source) != (method, source):
            raise QuantizationRefused(
                f"evidence of {method} on the model {source} was needed",
                got=f"of {self.method} on {self.source}",
                next_step="calibrate again on this model",
            )


def hash_of(text: str) -> str:
    """SHA-256 of a calibration text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()
